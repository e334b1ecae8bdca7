//! Tests of the uverbs room through its public interface. They are one program, which is built faster than one for each
//! file; `cargo test -p bareverbs-uverbs --test integration verbs::` runs those of one file.

mod arbitrary;
mod connections;
mod devx;
mod imports;
mod infiniband;
mod methods;
mod more_verbs;
mod objects;
mod support;
mod uapi_oracle;
mod verbs;
