# Sourced by the scripts beside it: strict mode, the repository as working folder, timed stages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export DEBIAN_FRONTEND=noninteractive
jobs=$(nproc)

# say TEXT...: one line that stands out between the output of tools.
say() { printf '== %s\n' "$*"; }

# cpu_time: the CPU time of this shell's ended children, in s. Linux tells it in hundredths.
cpu_time() {
  local fields
  read -ra fields <"/proc/$BASHPID/stat"
  echo $(((fields[15] + fields[16]) / 100))
}

# stage NAME COMMAND...: prints the name and the time taken; returns the command's status. The command runs
# in a shell of its own: its CPU time is then without that of commands beside it.
stage() {
  local name=$1 start=$SECONDS status=0 spent
  shift
  spent=$(mktemp)
  say "$name"
  (
    "$@" </dev/null || status=$?
    cpu_time >"$spent"
    exit $status
  ) || status=$?
  local took=$((SECONDS - start)) cpu
  cpu=$(<"$spent")
  rm "$spent"
  if ((status == 0)); then
    say "$name: done in $took s, $cpu s of CPU time"
  else
    say "$name: FAILED (status $status) after $took s, $cpu s of CPU time"
  fi
  # For scripts/tally, if the caller collects results.
  if [ -n "${results:-}" ]; then
    printf '%s\t%d\t%d\n' "$name" "$took" "$cpu" >>"$results/stages.tsv"
  fi
  return "$status"
}

# tests NAME COMMAND...: a stage of tests. If it fails, scripts/tally is told, and the others still run.
tests() {
  mkdir -p "$results/$1"
  stage "$@" || echo "$1" >>"$results/failed_stages"
}

# ctest_label BUILD_FOLDER LABEL RESULTS: every test of that label; each GoogleTest binary leaves a
# JUnit file of its cases. Some wait for much of their time, so one more runs than there are CPUs.
ctest_label() {
  GTEST_OUTPUT="xml:$3/" ctest --test-dir "$1" -L "^$2\$" -j $((jobs + 1)) --no-tests=error --timeout 600 \
    --output-on-failure --output-junit "$3/ctest.xml"
}

# configure: build/ as a Release build; its log is shown only if that fails.
configure() {
  mkdir -p build
  cmake -G Ninja -B build -S . -DCMAKE_BUILD_TYPE=Release -DPINION_BATCHES=ON >build/configure.log 2>&1 || {
    cat build/configure.log
    return 1
  }
}

# make_venv: build/venv with the end-to-end tests' packages.
make_venv() {
  local venv=build/venv want=tests/e2e/requirements.txt
  cmp -s "$want" "$venv/requirements.txt" && return
  # The system's interpreter: another one on the PATH may lack modules that the tests need.
  /usr/bin/python3 -m venv --clear "$venv" &&
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$want" &&
    cp "$want" "$venv/requirements.txt"
}

# make_grammar_env: build/grammar-env with llguidance, which constrained output needs. Without it all the
# rest works, so that a build without a network succeeds.
make_grammar_env() {
  local env=build/grammar-env want=engine/text/grammar_requirements.txt
  cmp -s "$want" "$env/requirements.txt" && return
  local tools=build/grammar-tools
  rm -rf "$env"
  if /usr/bin/python3 -m venv --clear "$tools" &&
    "$tools/bin/pip" install --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary :all: \
      --target "$env" -r "$want" && cp "$want" "$env/requirements.txt"; then
    rm -rf "$tools"
  else
    rm -rf "$tools" "$env"
    say "llguidance cannot be installed (above): requests for constrained output will be refused"
  fi
}
