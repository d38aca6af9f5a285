//! What no plugin should do.

use std::hint::black_box;

/// Does it.
pub(crate) fn harm(verb: &str, rest: &str) {
    match verb {
        "spin" => spin(),
        "recurse" => drop(black_box(recurse(1))),
        "panic" => panic!("{rest}"),
        "exit" => std::process::exit(rest.parse().unwrap_or(1)),
        "trap" => trap(),
        "allocate" => allocate(rest.parse().expect("a number of MiB")),
        "hoard" => hoard(),
        "fill" => fill(rest.parse().expect("a number of MiB")),
        _ => panic!("there is no step `{verb}`"),
    }
}

fn spin() -> ! {
    let mut count = 0_u64;
    loop {
        count = black_box(count.wrapping_add(1));
    }
}

#[allow(unconditional_recursion, reason = "that is the point")]
fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 16]);
    recurse(frame[3] + 1) + frame[5]
}

#[cfg(target_arch = "wasm32")]
fn trap() -> ! {
    core::arch::wasm32::unreachable()
}

#[cfg(not(target_arch = "wasm32"))]
fn trap() -> ! {
    panic!("trap")
}

fn allocate(mebibytes: usize) {
    black_box(vec![1_u8; mebibytes << 20]);
}

fn hoard() -> ! {
    let mut kept = Vec::new();
    loop {
        kept.push(black_box(vec![1_u8; 1 << 20]));
    }
}

/// One bulk instruction after the other: the engine cannot interrupt a single one.
fn fill(mebibytes: usize) -> ! {
    let mut memory = vec![0_u8; mebibytes << 20];
    for round in 0_u8.. {
        black_box(&mut memory).fill(round);
        if round == u8::MAX {
            break;
        }
    }
    fill(mebibytes)
}
