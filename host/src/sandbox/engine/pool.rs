//! How large the pool is: a pure rule over what the machine offers.

use wasmtime::{Enabled, PoolingAllocationConfig};

use super::engines::EngineError;
use super::settings::{MAX_MEMORY, MAX_TABLE_ELEMENTS, Reservation};

/// Where instances come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pool {
    /// A pool as large as is useful and as the machine allows; on demand where it allows none.
    #[default]
    Auto,
    /// A pool with room for this many live runs with fuel, and as many without.
    Slots(u32),
    /// No pool: each instance maps memory of its own, which starts runs several times slower.
    OnDemand,
}

impl Pool {
    /// The most slots that [`Pool::Auto`] takes.
    pub const USEFUL_SLOTS: u32 = AUTO_SLOTS;

    /// How many mappings this process needs when the pools of both engines, of that many slots each, are full.
    pub fn mappings(slots: u32) -> u64 {
        u64::from(slots) * MAPPINGS_PER_SLOT * ENGINES + MAPPINGS_FOR_THE_PROCESS
    }

    /// Whether the kernel tells which pages a run has touched, so that giving them back costs what the run used.
    pub fn scans_pages() -> bool {
        PoolingAllocationConfig::is_pagemap_scan_available()
    }
}

/// The most slots that [`Pool::Auto`] takes: making a pool costs about 3 µs for each of them, and an operator who
/// wants thousands of live runs can say so.
const AUTO_SLOTS: u32 = 2_048;

/// Fewer slots than this are not worth a pool.
const FEWEST_SLOTS: u32 = 16;

/// Two engines have a pool each, and either may carry all the runs.
const ENGINES: u64 = 2;

/// Mappings for each slot: two for the stack and its guard from the start, four more while a run lives there.
const MAPPINGS_PER_SLOT: u64 = 6;

/// Mappings that are left to the rest of the process: libraries, threads, compiled code, the heap.
const MAPPINGS_FOR_THE_PROCESS: u64 = 8_192;

/// Memories for each slot. Components from Rust, Python and StarlingMonkey have one, those from QuickJS two.
const MEMORIES_PER_SLOT: u32 = 2;

/// The most memories of one run, with a pool and without.
pub(in crate::sandbox) const MEMORIES_PER_COMPONENT: u32 = 4;

/// Address space for each slot: memories with their guards, tables and the stack, rounded up.
const ADDRESSES_PER_SLOT: u64 = MEMORIES_PER_SLOT as u64 * ((4 << 30) + (64 << 20)) + (16 << 20);

/// What the machine offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Machine {
    /// `vm.max_map_count`, where there is such a thing.
    pub(super) mappings: Option<u64>,
    /// The limit on this process's address space, if there is one.
    pub(super) addresses: Option<u64>,
}

impl Machine {
    /// What this machine offers to this process.
    pub(super) fn here() -> Machine {
        let mappings = std::fs::read_to_string("/proc/sys/vm/max_map_count");
        Machine {
            mappings: mappings.ok().and_then(|text| text.trim().parse().ok()),
            addresses: rustix::process::getrlimit(rustix::process::Resource::As).current,
        }
    }

    /// The most slots for each engine, by mappings.
    fn slots_by_mappings(&self) -> u64 {
        let left = self.mappings.map(|all| all.saturating_sub(MAPPINGS_FOR_THE_PROCESS));
        left.map_or(u64::MAX, |left| left / (MAPPINGS_PER_SLOT * ENGINES))
    }

    /// The most slots for each engine, by address space; half of it stays free for everything else.
    fn slots_by_addresses(&self) -> u64 {
        self.addresses.map_or(u64::MAX, |all| all / 2 / (ADDRESSES_PER_SLOT * ENGINES))
    }
}

/// What will be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plan {
    /// A pool of this many slots for each engine.
    Pooled(u32),
    /// No pool.
    OnDemand { reservation: Reservation, why: OnDemand },
}

/// Why there is no pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnDemand {
    /// The settings say so.
    Chosen,
    /// `vm.max_map_count` is too low.
    Mappings,
    /// The limit on the address space is too low.
    Addresses,
}

impl Plan {
    /// What to try for that setting on that machine.
    pub(super) fn new(pool: Pool, machine: &Machine) -> Result<Plan, EngineError> {
        // With little address space even single memories must not reserve 4 GiB each.
        let little = machine.slots_by_addresses() < u64::from(FEWEST_SLOTS);
        let reservation = if little { Reservation::Small } else { Reservation::Full };
        let most = machine.slots_by_mappings().min(machine.slots_by_addresses());
        match pool {
            Pool::OnDemand => Ok(Plan::OnDemand { reservation, why: OnDemand::Chosen }),
            Pool::Slots(0) => Err(EngineError::NoSlots),
            Pool::Slots(asked) if u64::from(asked) > most => Err(EngineError::TooManySlots {
                asked,
                most,
                mappings: machine.mappings,
                addresses: machine.addresses,
            }),
            Pool::Slots(asked) => Ok(Plan::Pooled(asked)),
            Pool::Auto if little => Ok(Plan::OnDemand { reservation, why: OnDemand::Addresses }),
            Pool::Auto if most < u64::from(FEWEST_SLOTS) => {
                Ok(Plan::OnDemand { reservation, why: OnDemand::Mappings })
            }
            Pool::Auto => Ok(Plan::Pooled(u32::try_from(most).unwrap_or(u32::MAX).min(AUTO_SLOTS))),
        }
    }

    /// A smaller pool to try after one of that many slots could not be had.
    pub(super) fn smaller(slots: u32) -> Option<u32> {
        Some(slots / 4).filter(|slots| *slots >= FEWEST_SLOTS)
    }
}

/// The configuration of a pool of that many slots.
///
/// The caps for each component leave room for what tool chains make (CPython has one memory, two tables and 14 core
/// instances, QuickJS two memories; Python extensions are linked from dozens of core instances). What a run may really use is the
/// business of its limits, which add up over the whole store.
pub(super) fn pool_config(slots: u32) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(slots)
        .total_stacks(slots)
        .total_memories(slots.saturating_mul(MEMORIES_PER_SLOT))
        .total_tables(slots.saturating_mul(4))
        .total_core_instances(slots.saturating_mul(32))
        .max_core_instances_per_component(256)
        .max_memories_per_component(MEMORIES_PER_COMPONENT)
        .max_memories_per_module(4)
        .max_tables_per_component(8)
        .max_tables_per_module(8)
        .max_memory_size(usize::try_from(MAX_MEMORY).unwrap_or(usize::MAX))
        .table_elements(usize::try_from(MAX_TABLE_ELEMENTS).unwrap_or(usize::MAX))
        .max_unused_warm_slots(100);
    if Pool::scans_pages() {
        // The kernel tells which pages a guest has touched, so that cleaning a slot costs what the guest used.
        pool.pagemap_scan(Enabled::Yes)
            .linear_memory_keep_resident(1 << 20)
            .table_keep_resident(128 << 10);
    } else {
        // Without it, keeping pages costs more than giving them back; give back several slots in one go.
        pool.pagemap_scan(Enabled::No).decommit_batch_size(16);
    }
    pool
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Machine = Machine { mappings: Some(65_530), addresses: None };

    #[test]
    fn a_usual_machine_gets_a_pool() {
        assert_eq!(Plan::new(Pool::Auto, &USUAL), Ok(Plan::Pooled(AUTO_SLOTS)));
        let unbounded = Machine { mappings: None, addresses: None };
        assert_eq!(Plan::new(Pool::Auto, &unbounded), Ok(Plan::Pooled(AUTO_SLOTS)));
    }

    #[test]
    fn all_slots_of_both_engines_fit_into_the_mappings() {
        for mappings in [8_192, 9_000, 20_000, 65_530, 262_144] {
            let machine = Machine { mappings: Some(mappings), addresses: None };
            match Plan::new(Pool::Auto, &machine).unwrap() {
                Plan::Pooled(slots) => {
                    assert!(Pool::mappings(slots) <= mappings && u64::from(slots) * 12 < mappings);
                }
                Plan::OnDemand { why, reservation } => {
                    assert!(mappings < 9_000);
                    assert_eq!((why, reservation), (OnDemand::Mappings, Reservation::Full));
                }
            }
        }
    }

    #[test]
    fn a_limited_address_space_gets_small_memories_on_demand() {
        let limited = Machine { addresses: Some(64 << 30), ..USUAL };
        let expected = Plan::OnDemand { reservation: Reservation::Small, why: OnDemand::Addresses };
        assert_eq!(Plan::new(Pool::Auto, &limited), Ok(expected));
        let roomy = Machine { addresses: Some(16 << 40), ..USUAL };
        assert!(
            matches!(Plan::new(Pool::Auto, &roomy), Ok(Plan::Pooled(slots)) if (100..AUTO_SLOTS).contains(&slots))
        );
    }

    #[test]
    fn more_slots_than_the_machine_can_hold_are_refused() {
        assert_eq!(Plan::new(Pool::Slots(4_000), &USUAL), Ok(Plan::Pooled(4_000)));
        let refused = Plan::new(Pool::Slots(10_000), &USUAL).unwrap_err();
        assert_eq!(
            refused,
            EngineError::TooManySlots {
                asked: 10_000,
                most: 4_778,
                mappings: Some(65_530),
                addresses: None
            }
        );
        assert_eq!(Plan::new(Pool::Slots(0), &USUAL), Err(EngineError::NoSlots));
    }
}
