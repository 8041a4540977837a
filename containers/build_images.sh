#!/bin/sh
# Builds the benchmark images, each after its base: build_images.sh [IMAGE...]. Without names, all of them.
# An image that fails, or whose base did, does not stop the others; the exit code is 1 then.
#   ENGINE=podman   another engine than docker
#   TAG=1.0         another tag than latest
set -u
cd "$(dirname "$0")" || exit 1
engine=${ENGINE:-docker}
tag=${TAG:-latest}
all="gpu_base sciml_base mantid_base mantid_run_1 mantid_run_8 mnist_tf_keras stemdl_classification_1gpu
stemdl_classification_2gpu synthetic_regression dummy"

base_of() {
    sed -n 's/^ARG BASE=\([a-z_]*_base\):latest$/\1/p' "$1/Dockerfile"
}

wanted=
want() { # an image and, before it, its base
    case " $wanted " in *" $1 "*) return ;; esac
    if [ ! -f "$1/Dockerfile" ]; then
        echo "error: there is no image $1; there are: $(echo "$all" | tr '\n' ' ')" >&2
        exit 2
    fi
    base=$(base_of "$1")
    [ -z "$base" ] || want "$base"
    wanted="$wanted $1"
}

# shellcheck disable=SC2086 # a list of words
[ $# -gt 0 ] || set -- $all
for image in "$@"; do
    want "$image"
done

built='' failed=''
for image in $wanted; do
    base=$(base_of "$image")
    case " $failed " in
        *" ${base:-none} "*)
            echo "== $image: skipped, its base $base failed" >&2
            failed="$failed $image"
            continue
            ;;
    esac
    echo "== $image"
    if DOCKER_BUILDKIT=1 "$engine" build ${base:+--build-arg "BASE=$base:$tag"} --tag "$image:$tag" "$image"; then
        built="$built $image"
    else
        failed="$failed $image"
    fi
done

echo
echo "built: ${built:- none}"
if [ -n "$failed" ]; then
    echo "failed:$failed" >&2
    exit 1
fi
