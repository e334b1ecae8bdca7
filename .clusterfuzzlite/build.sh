#!/bin/bash -eu
# The targets of fuzz/ with the sanitizer of addresses, and their corpora beside them.
cd "$SRC/bareverbs"
cargo fuzz build --release
for target in $(cargo fuzz list); do
    cp "fuzz/target/x86_64-unknown-linux-gnu/release/$target" "$OUT/"
    zip -qj "$OUT/${target}_seed_corpus.zip" "fuzz/corpus/$target"/*
    printf '[libfuzzer]\nmax_len = 4096\nrss_limit_mb = 2048\ntimeout = 1\n' >"$OUT/$target.options"
done
