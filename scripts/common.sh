# Sourced by the scripts beside it: strict mode, the repository as working folder, timed stages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export DEBIAN_FRONTEND=noninteractive
jobs=$(nproc)

# say TEXT...: one line that stands out between the output of tools.
say() { printf '== %s\n' "$*"; }

# stage NAME COMMAND...: says what is being done and how long it took; keeps the command's status.
stage() {
  local name=$1 start=$SECONDS status=0
  shift
  say "$name"
  "$@" </dev/null || status=$?
  if ((status == 0)); then
    say "$name: done in $((SECONDS - start)) s"
  else
    say "$name: FAILED (status $status) after $((SECONDS - start)) s"
  fi
  return "$status"
}
