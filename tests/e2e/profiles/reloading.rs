//! A profile takes over what its configuration names: plugins, and the keys of models.

use std::fs;

use checkrein::ErrorKind;
use checkrein::session::Session;
use checkrein_testkit::wire::{Reply, Wire};
use checkrein_testkit::{Plugin, guest, neighbour_answer, within};

use super::{Bed, profile};
use crate::start::{Result, host, with_agent};

async fn says(session: &Session, goal: &str) -> Result<String> {
    let turn = session.prompt(goal, "")?;
    Ok(within("a turn", turn.ended()).await?.output)
}

/// A bed with one profile whose plugins lie in its home, and whose model asks that endpoint with the key in a file.
fn bed(wire: &Wire) -> Result<Bed> {
    let bed = Bed::new(with_agent().build()?)?;
    let configuration = format!(
        "plugin-directories = [\"plugins\"]\ndefault-model = \"main\"\n\
         [models.main]\nkind = \"openai\"\nmodel = \"m\"\nbase-url = \"{}\"\nkey-file = \"key\"\n\
         [plugins.own.grants]\nmodels = [\"*\"]\n",
        wire.openai()
    );
    bed.write("main", &configuration)?;
    fs::create_dir(bed.home("main").join("plugins"))?;
    fs::write(bed.home("main").join("key"), "first")?;
    Ok(bed)
}

/// Plugins that are rebuilt, new or gone, and a key that was rotated, are taken over and named. Turns that run keep what they
/// began with.
#[tokio::test(flavor = "multi_thread")]
async fn plugins_and_keys_are_taken_over_and_running_turns_are_left_alone() -> Result {
    let wire = Wire::start().await?;
    for _ in 0..3 {
        wire.reply(Reply::new().text("fine"));
    }
    let bed = bed(&wire)?;
    let home = bed.home("main");
    let plugins = home.join("plugins");
    Plugin::agent("own", guest("agent")).write(&plugins)?;
    let authority = bed.serve("main").await?;
    let main = profile(&authority)?;
    let open = |agent: &'static str| main.open(agent, Default::default());
    let busy = open("own").await?;
    let turn = busy.prompt("checkpoint here\nask old\nsay the old one", "")?;
    bed.host.reached("here").await?;
    let idle = open("own").await?;
    assert_eq!(bed.reconcile().await?.kept, ["main"]);

    // The new one only counts.
    Plugin::agent("own", guest("neighbour")).write(&plugins)?;
    Plugin::agent("second", guest("agent")).write(&plugins)?;
    fs::write(home.join("key"), "other")?;
    let folder = |name: &str| plugins.join(name).display().to_string();
    let done = bed.reconcile().await?;
    assert_eq!(done.reloaded, ["main"], "{done:?}");
    let expected = [
        format!("the plugin in {} has changed", folder("own")),
        format!("the plugin in {} is new", folder("second")),
        "the key of the model `main` has changed".to_owned(),
    ];
    assert_eq!(done.changed["main"], expected);
    assert_eq!(bed.reconcile().await?.kept, ["main"], "it is told once");
    assert_eq!(says(&idle, "0").await?, neighbour_answer(0));
    assert_eq!(says(&open("second").await?, "say new").await?, "new");
    bed.host.release("here");
    assert_eq!(within("the old turn", turn.ended()).await?.output, "fine\nthe old one");
    assert_eq!(wire.request(0).await.header("authorization"), "Bearer first");
    assert_eq!(says(&busy, "0").await?, neighbour_answer(0), "its next turn is of the new one");

    Plugin::agent("own", guest("agent")).write(&plugins)?;
    fs::remove_dir_all(plugins.join("second"))?;
    let done = bed.reconcile().await?;
    assert!(done.changed["main"].contains(&format!("the plugin in {} is gone", folder("second"))));
    assert_eq!(says(&idle, "ask new").await?, "fine");
    assert_eq!(wire.request(1).await.header("authorization"), "Bearer other");
    let gone = open("second").await.err().map(|error| error.kind());
    assert_eq!(gone, Some(ErrorKind::NotFound));
    Ok(())
}

/// A plugin that cannot be used, half written for instance, is not put in the place of one that works. One that is gone is.
#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_cannot_be_used_takes_no_place() -> Result {
    let bed = bed(&Wire::start().await?)?;
    let plugins = bed.home("main").join("plugins");
    let own = Plugin::agent("own", guest("agent"));
    let folder = own.write(&plugins)?;
    let authority = bed.serve("main").await?;
    let held = profile(&authority)?.open("own", Default::default()).await?;
    let id = held.id().clone();
    for file in ["own.wasm", "plugin.toml"] {
        fs::write(folder.join(file), "half of i")?;
        assert_eq!(bed.reconcile().await?.reloaded, ["main"]);
        assert_eq!(says(&held, "say still here").await?, "still here", "{file}");
        assert!(profile(&authority)?.open("own", Default::default()).await.is_err(), "{file}");
        own.write(&plugins)?;
        assert_eq!(bed.reconcile().await?.reloaded, ["main"]);
    }
    fs::remove_dir_all(&folder)?;
    assert_eq!(bed.reconcile().await?.reloaded, ["main"]);
    assert!(held.prompt("say more", "").is_err(), "its agent is gone");
    drop(held);
    own.write(&plugins)?;
    assert_eq!(bed.reconcile().await?.reloaded, ["main"]);
    let again = within("the session", profile(&authority)?.session(&id)).await??;
    assert_eq!(says(&again, "say back").await?, "back");
    Ok(())
}

/// A model's key that was missing is found when it is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_comes_later_is_found() -> Result {
    let wire = Wire::start().await?;
    wire.reply(Reply::new().text("fine"));
    let bed = bed(&wire)?;
    fs::remove_file(bed.home("main").join("key"))?;
    Plugin::agent("own", guest("agent")).write(&bed.home("main").join("plugins"))?;
    bed.serve("main").await?;
    fs::write(bed.home("main").join("key"), "late")?;
    assert_eq!(bed.reconcile().await?.changed["main"].len(), 1);
    let own = profile(&bed.serve("main").await?)?.open("own", Default::default()).await?;
    assert_eq!(says(&own, "ask").await?, "fine");
    assert_eq!(wire.request(0).await.header("authorization"), "Bearer late");
    Ok(())
}

/// How large a component may be is the host's to say, and what it says counts in its profiles, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_component_may_be_as_large_in_a_profile_as_in_the_host() -> Result {
    // A section that nobody reads makes it larger than components usually may be.
    let mut large = guest("agent").to_vec();
    let size: u32 = 65 << 20;
    large.push(0);
    large.extend((0..5).map(|at| (size >> (7 * at)) as u8 & 0x7f | if at < 4 { 0x80 } else { 0 }));
    large.extend([4, b'f', b'i', b'l', b'l']);
    large.resize(large.len() + size as usize - 5, 0);
    for (configuration, is_let_in) in
        [("[compile]\ncomponent-bytes = \"80MiB\"\n", true), ("", false)]
    {
        let bed = Bed::new(host().configuration(configuration).build()?)?;
        bed.write("main", "plugin-directories = [\"plugins\"]\n")?;
        fs::create_dir(bed.home("main").join("plugins"))?;
        Plugin::agent("own", large.clone()).write(&bed.home("main").join("plugins"))?;
        let profile = profile(&bed.serve("main").await?)?;
        match profile.open("own", Default::default()).await {
            Ok(own) => {
                assert!(is_let_in);
                assert_eq!(says(&own, "say fine").await?, "fine");
            }
            Err(error) => assert!(!is_let_in, "{error:?}"),
        }
    }
    Ok(())
}
