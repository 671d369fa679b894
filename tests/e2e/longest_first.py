"""Which file of tests a worker takes next: the longest that is left, so that no worker is alone with one at the end.

pytest-xdist begins with the files that have the most tests, and the longest have few: sweeps and races."""

import pathlib

from xdist.scheduler import LoadFileScheduling

# Files in the order in which they begin; the others follow, those with the most tests first. `scripts/test` writes the
# seconds of each test: build/test-results/end-to-end/pytest.xml.
LONGEST = pathlib.Path(__file__).with_name("longest_first.txt").read_text().split()


class LongestFirst(LoadFileScheduling):
    """xdist's `--dist loadfile` in another order."""

    longest = LONGEST

    def _assign_work_unit(self, node):
        # It takes the first of the queue, which is sorted by the number of tests.
        longest = next((file for file in self.longest if file in self.workqueue), None)
        if longest:
            self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)
