//! A service that is let go of without a shutdown.

use std::fs;
use std::time::Duration;

use checkrein::profile::STOPPING;
use checkrein::session::Delivery;
use checkrein::work::Stop;
use checkrein::work::shutdown::Bounds;
use checkrein::{Service, ServiceSettings};
use checkrein_testkit::{TestHost, within};

use crate::start::{Result, interrupted, with_agent};

async fn service(host: &TestHost) -> Result<Service> {
    let settings = ServiceSettings {
        profiles: host.home().join("profiles"),
        retire: Duration::ZERO,
        bounds: Bounds::default(),
    };
    let service = Service::new(host.host(), settings);
    within("the service", service.start()).await??;
    Ok(service)
}

/// Rules P4 and W4: what is in its profiles is stopped, and the same process can serve the homes again when that has ended, though
/// the shutdown of the service had been prepared and its sessions were awake.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_dropped_gives_its_homes_back_when_their_work_has_ended() -> Result {
    let host = with_agent().build()?;
    let home = host.home().join("profiles/main");
    fs::create_dir_all(&home)?;
    fs::write(home.join("profile.toml"), "")?;
    let first = service(&host).await?;
    assert!(!first.shutdown().has_begun());
    let profile = first.profile("main").ok_or_else(|| anyhow::anyhow!("not served"))?;
    let session = within("a session", profile.open("agent", Delivery::Turns)).await??;
    let turn = session.prompt("checkpoint here", "")?;
    host.reached("here").await?;
    drop(first);
    let report = within("the turn", turn.ended()).await?;
    assert_eq!(report.outcome, interrupted(Stop::hard("host", STOPPING)));

    // Somebody has a session and its profile still, so that the home is not free.
    let second = service(&host).await?;
    assert!(second.profile("main").is_none(), "{:?}", second.profiles().parked());
    let id = session.id().clone();
    drop((session, profile));
    let served = async {
        while second.profile("main").is_none() {
            second.reconcile().await?;
        }
        anyhow::Ok(())
    };
    within("the home is free", served).await??;
    let profile = second.profile("main").ok_or_else(|| anyhow::anyhow!("not served"))?;
    let session = within("the session", profile.session(&id)).await??;
    let turn = session.prompt("say again", "")?;
    assert_eq!(within("the next turn", turn.ended()).await?.output, "again");
    Ok(())
}
