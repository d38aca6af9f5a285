//! `--limit NAME=VALUE`: ceilings of one run.

use checkrein::plugin::LimitsTable;

use super::text;

/// Reads one argument, in the words of the configuration's `[limits]`.
pub(super) fn parse(text: &str) -> Result<LimitsTable, String> {
    let Some((name, value)) = text.split_once('=') else {
        return Err("write NAME=VALUE, such as wall-time=30s or fuel=1000000".to_owned());
    };
    let mut table = toml::Table::new();
    let value = match value.parse::<i64>() {
        Ok(number) => toml::Value::Integer(number),
        Err(_) => toml::Value::String(value.to_owned()),
    };
    table.insert(name.to_owned(), value);
    table.try_into::<LimitsTable>().map_err(|error| text::line(error.message(), 400))
}

/// Both tables in one; what `over` says goes before what `below` says.
pub(super) fn over(over: &LimitsTable, below: &LimitsTable) -> LimitsTable {
    LimitsTable {
        memory: over.memory.or(below.memory),
        table_elements: over.table_elements.or(below.table_elements),
        fuel: over.fuel.or(below.fuel),
        wall_time: over.wall_time.or(below.wall_time),
        door_bytes: over.door_bytes.or(below.door_bytes),
        call_bytes: over.call_bytes.or(below.call_bytes),
        output_bytes: over.output_bytes.or(below.output_bytes),
        log_bytes: over.log_bytes.or(below.log_bytes),
        calls_in_flight: over.calls_in_flight.or(below.calls_in_flight),
        model_tokens: over.model_tokens.or(below.model_tokens),
        open_files: over.open_files.or(below.open_files),
        handles: over.handles.or(below.handles),
    }
}

#[cfg(test)]
mod tests {
    use checkrein::plugin::{Bound, Count, Size, Time};

    use super::*;

    #[test]
    fn a_limit_is_read_as_the_configuration_spells_it() {
        assert_eq!(parse("memory=64MiB").unwrap().memory, Some(Size(64 << 20)));
        assert_eq!(parse("fuel=1000").unwrap().fuel, Some(Bound::At(Count(1000))));
        assert_eq!(parse("fuel=none").unwrap().fuel, Some(Bound::None));
        let time = Bound::At(Time(std::time::Duration::from_secs(30)));
        assert_eq!(parse("wall-time=30s").unwrap().wall_time, Some(time));
    }

    #[test]
    fn a_limit_that_is_none_is_refused_in_one_line() {
        for bad in ["fuel", "feul=3", "memory=", "memory=-1", "wall-time=30", "handles=0", "a\nb=1"]
        {
            let words = parse(bad).unwrap_err();
            assert!(!words.is_empty() && words.lines().count() == 1, "{bad}: {words}");
        }
    }

    #[test]
    fn the_upper_table_wins_key_by_key() {
        let both = over(
            &parse("fuel=1").unwrap(),
            &over(&parse("fuel=2").unwrap(), &parse("handles=3").unwrap()),
        );
        assert_eq!((both.fuel, both.handles), (Some(Bound::At(Count(1))), Some(Count(3))));
    }
}
