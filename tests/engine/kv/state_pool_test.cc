#include "engine/kv/state_pool.h"

#include <gtest/gtest.h>

#include <set>

namespace pinion {
namespace {

BlockHash Hash(uint64_t value) { return {value, value * 7 + 1}; }

void KeepNew(StatePool& pool, uint64_t value) {
  const auto place = pool.Reserve();
  ASSERT_TRUE(place);
  pool.Keep(*place, Hash(value));
}

TEST(StatePool, GivesEveryStateAPlaceOfItsOwnBehindTheFirst) {
  StatePool pool(5, 3);
  std::set<int32_t> places;
  for (uint64_t value = 0; value < 3; ++value) {
    KeepNew(pool, value);
    places.insert(*pool.Use(Hash(value)));
  }
  EXPECT_EQ(places, (std::set<int32_t>{5, 6, 7}));
  EXPECT_EQ(pool.kept(), 3u);
  EXPECT_FALSE(pool.Use(Hash(9)));
}

TEST(StatePool, ForgetsTheLeastRecentlyUsedState) {
  StatePool pool(0, 2);
  KeepNew(pool, 1);
  KeepNew(pool, 2);
  pool.Release(*pool.Use(Hash(1)));
  KeepNew(pool, 3);
  EXPECT_TRUE(pool.Has(Hash(1)));
  EXPECT_FALSE(pool.Has(Hash(2)));
  EXPECT_TRUE(pool.Has(Hash(3)));
}

TEST(StatePool, ForgetsNoStateThatIsInUse) {
  StatePool pool(0, 1);
  KeepNew(pool, 1);
  const int32_t place = *pool.Use(Hash(1));
  EXPECT_EQ(pool.Use(Hash(1)), place) << "two users";
  EXPECT_FALSE(pool.Reserve());
  pool.Release(place);
  EXPECT_FALSE(pool.Reserve()) << "one is left";
  pool.Drop();
  EXPECT_TRUE(pool.Has(Hash(1)));
  pool.Release(place);
  EXPECT_EQ(pool.Reserve(), place);
  EXPECT_FALSE(pool.Has(Hash(1)));
}

TEST(StatePool, KeepsAPrefixOnceAndTakesCancelledPlacesBack) {
  StatePool pool(0, 2);
  KeepNew(pool, 1);
  KeepNew(pool, 1);
  EXPECT_EQ(pool.kept(), 1u);
  pool.Cancel(*pool.Reserve());
  KeepNew(pool, 2);
  EXPECT_TRUE(pool.Has(Hash(1))) << "there was a free place";
}

TEST(StatePool, DropsAll) {
  StatePool pool(0, 2);
  KeepNew(pool, 1);
  KeepNew(pool, 2);
  pool.Drop();
  EXPECT_EQ(pool.kept(), 0u);
  KeepNew(pool, 3);
  KeepNew(pool, 4);
  EXPECT_EQ(pool.kept(), 2u);
}

TEST(StatePool, WithoutPlacesNothingIsKept) { EXPECT_FALSE(StatePool(3, 0).Reserve()); }

}  // namespace
}  // namespace pinion
