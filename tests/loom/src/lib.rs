//! The room `work` of the host, compiled with the locks of loom. Without `--cfg checkrein_loom` there is nothing here.

#![cfg(checkrein_loom)]

#[path = "../../../host/src/ids.rs"]
pub mod ids;
#[path = "../../../host/src/metrics.rs"]
pub mod metrics;
pub mod stand_in;
#[path = "../../../host/src/work/mod.rs"]
pub mod work;
