//! The image. On a host it is a program that says what it is for.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(all(target_os = "none", target_arch = "aarch64"))]
#[path = "image/aarch64/mod.rs"]
mod machine;
#[cfg(all(target_os = "none", target_arch = "x86_64"))]
#[path = "image/x86_64/mod.rs"]
mod machine;

#[cfg(target_os = "none")]
mod image;

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!(
        "this program runs without an operating system: build it with --target x86_64-unknown-none or \
         aarch64-unknown-none (.ci/bare-metal), or let `cargo run -p bareverbs-tests --bin guest -- bare-metal` do so"
    );
    std::process::exit(2);
}
