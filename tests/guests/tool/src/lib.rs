//! Tools that misbehave, each in its own way, and a few that behave.

#[cfg(target_arch = "wasm32")]
mod parks;
mod reach;
mod waits;

use std::hint::black_box;

use checkrein_guest::prelude::*;

/// What any of these tools may be told.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Arguments {
    /// Words.
    pub text: String,
    /// A path.
    pub path: String,
    /// A host.
    pub host: String,
    /// A port.
    pub port: u16,
    /// How many.
    pub count: usize,
}

/// Declares tools, each with the one function that it is.
macro_rules! declare {
    ($($tool:ident $name:literal $function:expr;)+) => {
        $(
            pub struct $tool;

            impl Tool for $tool {
                const NAME: &str = $name;
                const DESCRIPTION: &str = "A tool of the tests.";
                type Arguments = Arguments;

                fn call(arguments: Arguments, cx: &ToolContext) -> Result<Output, Failure> {
                    let function: fn(Arguments, &ToolContext) -> Result<Output, Failure> = $function;
                    function(arguments, cx)
                }
            }
        )+

        tools!($($tool),+);
    };
}

declare! {
    Echo "echo" |arguments, _| Ok(arguments.text.into());
    Fail "fail" |arguments, _| Err(Failure::new(&arguments.text, "as it was told"));
    Size "size" |arguments, _| Ok("o".repeat(arguments.count).into());
    Spin "spin" |_, cx| {
        cx.info("spinning");
        loop { black_box(()); }
    };
    Panic "panic" |arguments, _| panic!("{}", arguments.text);
    Recurse "recurse" |_, _| Ok(recurse(1).to_string().into());
    Allocate "allocate" |arguments, _| {
        black_box(vec![1_u8; arguments.count << 20]);
        Ok("got it".into())
    };
    Logs "logs" |arguments, cx| {
        for _ in 0..arguments.count {
            cx.info(&arguments.text);
        }
        Ok("logged".into())
    };
    Handles "handles" |arguments, _| waits::handles(arguments.count);
    Loop "loop" |arguments, cx| waits::over_and_over(&arguments.text, cx);
    Park "park" |arguments, cx| waits::park(&arguments, cx);
    Files "files" |arguments, cx| waits::files(&arguments.text, cx);
    Sleep "sleep" |arguments, cx| waits::sleep(&arguments.text, cx);
    Secret "secret" |arguments, cx| Ok(cx.secret(&arguments.text)?.into());
    Environment "environment" |_, _| {
        let variables: Vec<String> = std::env::vars().map(|(name, value)| format!("{name}={value}")).collect();
        Ok(variables.join("\n").into())
    };
    Read "read" |arguments, _| reach::read(&arguments.path);
    List "list" |arguments, _| reach::list(&arguments.path);
    Write "write" |arguments, _| reach::write(&arguments.path, &arguments.text);
    Link "link" |arguments, _| reach::link(&arguments.path, &arguments.text);
    OpenAll "open-all" |arguments, _| reach::open_all(&arguments.path, arguments.count);
    OpenOrFail "open-or-fail" |arguments, _| reach::open_or_fail(&arguments.path, arguments.count);
    OpenOrPanic "open-or-panic" |arguments, _| Ok(reach::open_or_fail(&arguments.path, arguments.count).unwrap());
    ReadOn "read-on" |arguments, cx| reach::read_on(&arguments.path, cx);
    Resolve "resolve" |arguments, _| reach::resolve(&arguments.host);
    Connect "connect" |arguments, cx| reach::connect(&arguments.host, arguments.port, cx);
    Fetch "fetch" |arguments, cx| reach::fetch(&arguments.host, arguments.port, &arguments.path, cx);
}

#[allow(unconditional_recursion, reason = "that is the point")]
fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 16]);
    recurse(frame[3] + 1) + frame[5]
}
