//! An agent that does honest work with many calls of the host, so that whoever harms it can be found out.
//!
//! The goal is a number of rounds. The answer is a checksum over what the host gave back in each of them; it is the
//! one that `checkrein_testkit::neighbour_answer` works out natively. Half-way it stops at the checkpoint `half SESSION`.

use checkrein_guest::prelude::*;

#[derive(Default)]
struct Neighbour;

impl Agent for Neighbour {
    fn run(&self, run: &Run) -> Result<String, Failure> {
        let rounds: u64 = run
            .task()
            .goal
            .trim()
            .parse()
            .map_err(|_| Failure::invalid("not a number of rounds"))?;
        let mut sum = 0xcbf2_9ce4_8422_2325_u64;
        for round in 0..rounds {
            if round == rounds / 2 {
                run.checkpoint(&format!("half {}", run.task().session_id))?;
            }
            let key = format!("key-{}", round % 16);
            run.memory_set_bytes(&key, &(sum ^ round).to_le_bytes())?;
            let back =
                run.memory_get_bytes(&key)?.ok_or_else(|| Failure::failed("the memory forgot"))?;
            for byte in back {
                sum = (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
            if run.memory_keys("key-")?.len() as u64 != (round + 1).min(16) {
                return Err(Failure::failed("the memory has other keys"));
            }
            if round % 32 == 0 {
                run.progress(&format!("round {round}"))?;
                // A buffer of its own, so that also its memory is looked at.
                let buffer = vec![(round % 251) as u8; 64 << 10];
                if buffer.iter().any(|byte| *byte != (round % 251) as u8) {
                    return Err(Failure::failed("the buffer has changed"));
                }
            }
        }
        Ok(format!("{sum:016x}"))
    }
}

agent!(Neighbour);
