# Read by `test` and `check`: runs the stages of a run one by one, with the seconds of each, and sums up.
#
# A stage that fails does not stop the ones after it. A line in the file $MCPCONN_SKIPPED is something that
# could not be run; without ALLOW_SKIP=1 that is a failure too, because it proved nothing.

cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
mkdir -p "$target"
# Nothing is written outside of the checkout, not even for a moment.
export TMPDIR=$target/tmp
mkdir -p "$TMPDIR"
export MCPCONN_SKIPPED=$target/skipped-by-${0##*/}
: >"$MCPCONN_SKIPPED"
results=

# stage NAME COMMAND...
stage() {
    name=$1
    shift
    printf '\n=== %s\n' "$name"
    began=$(date +%s)
    if "$@" </dev/null; then result=ok; else result=FAILED; fi
    results="$results$(printf '%5d s  %-6s  %s' "$(($(date +%s) - began))" "$result" "$name")
"
    [ "$result" = ok ]
}

# skip NAME WHY
skip() {
    echo "$1: $2" >>"$MCPCONN_SKIPPED"
}

# Prints how each stage went; the status is that of the whole run.
finish() {
    printf '\n=== %s\n%s' "${0##*/}" "$results"
    status=0
    case $results in *FAILED*) status=1 ;; esac
    if [ -s "$MCPCONN_SKIPPED" ]; then
        echo "These could not be run:"
        sed 's/^/  /' "$MCPCONN_SKIPPED"
        if [ "${ALLOW_SKIP:-}" != 1 ]; then
            echo "That counts as a failure; ALLOW_SKIP=1 lets it pass."
            status=1
        fi
    fi
    return $status
}
