//! `roci perf --perftest`: the server of one client of perftest's, as `ib_send_bw` without a host is.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::ExitCode;

use roci_driver::Engine;
use roci_msgcore::ports::{open_alone, queue_pair_params};
use roci_msgcore::{Config, LiveLink};
use roci_perftest::exchange::ClientReport;
use roci_perftest::{EngineOwner, MessageSizes, PORT, Served, ServerSettings, Test, serve};
use serde_json::{Value, json};

use crate::failure::{Failure, FailureContext};
use crate::options::PerfOptions;
use crate::output;

/// The engine of this process; a poll that finds nothing leaves the processor to others.
struct PerftestEngine(Engine<LiveLink>);

impl EngineOwner for PerftestEngine {
    type Link = LiveLink;

    fn engine(&mut self) -> &mut Engine<LiveLink> {
        &mut self.0
    }

    fn poll(&mut self) -> usize {
        let frames = self.0.poll();
        if frames == 0 {
            std::thread::yield_now();
        }
        frames
    }
}

pub(super) fn run(test: Test, options: &PerfOptions) -> Result<ExitCode, Failure> {
    let config = options.device.config()?;
    let settings = settings(test, options, &config)?;
    let listener = listen(options.server.listen.as_deref())?;
    let mut port = PerftestEngine(open_alone(&config)?);
    if !options.json {
        output::line(invitation(test, options, listener.local_addr().context("cannot listen")?))?;
    }
    let served = serve(&mut port, &listener, &settings)?;
    let device = config.device_of(0)?.to_string();
    output::line(if options.json { row(test, &device, &served).to_string() } else { words(test, &device, &served) })?;
    Ok(ExitCode::SUCCESS)
}

fn settings(test: Test, options: &PerfOptions, config: &Config) -> Result<ServerSettings, Failure> {
    if options.iters.is_some() && test != Test::WriteLat {
        return Err(Failure::new(
            "--iters is for --perftest write_lat: of all other tests the client alone knows how many messages it sends",
        ));
    }
    let mut settings = ServerSettings::new(test, sizes(test, options)?, queue_pair_params(config))?;
    settings.iterations = options.iters.unwrap_or(ServerSettings::ITERATIONS);
    Ok(settings)
}

fn sizes(test: Test, options: &PerfOptions) -> Result<MessageSizes, Failure> {
    match options.size[..] {
        _ if options.all => Ok(MessageSizes::All),
        [] => Ok(MessageSizes::One(test.default_size())),
        [size] => Ok(MessageSizes::One(size)),
        _ => Err(Failure::new("a client of perftest's has one size, or all of them: give one --size, or --all")),
    }
}

fn listen(address: Option<&str>) -> Result<TcpListener, Failure> {
    let anywhere = || SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)).to_string();
    let address = address.map_or_else(anywhere, str::to_owned);
    TcpListener::bind(&address).context(format!("cannot listen at {address}"))
}

/// What to run on the other side.
fn invitation(test: Test, options: &PerfOptions, place: SocketAddr) -> String {
    let size = options.size.first().map_or_else(String::new, |size| format!(" -s {size}"));
    let all = if options.all { " -a" } else { "" };
    let iters = options.iters.map_or_else(String::new, |iters| format!(" -n {iters}"));
    let port = if place.port() == PORT { String::new() } else { format!(" -p {}", place.port()) };
    let host = if place.ip().is_unspecified() { "THIS_HOST".to_owned() } else { place.ip().to_string() };
    let name = test.name();
    format!(
        "waiting at {place}; on the other host: ib_{name} -F -x INDEX_OF_ROCE_V2_GID{size}{all}{iters}{port} {host}"
    )
}

fn words(test: Test, device: &str, served: &Served) -> String {
    let Served { client, version, peer, messages, report } = served;
    let (name, mtu, ip) = (test.name(), peer.mtu.bytes(), peer.ip);
    let came = messages.map_or_else(String::new, |messages| format!(": {messages} messages came"));
    let reported = report.map_or_else(String::new, |ClientReport { size, messages, peak, average, mmsgs }| {
        let rates =
            format!("peak {peak:.2}, average {average:.2} (MB/s, or Gb/s with --report_gbits), {mmsgs:.6} Mmsg/s");
        format!(": the client reports {messages} messages of {size} bytes, {rates}")
    });
    format!("device {device}, ib_{name} {version} at {client}, GID of {ip}, path MTU {mtu}{came}{reported}")
}

fn row(test: Test, device: &str, served: &Served) -> Value {
    let Served { client, version, peer, messages, report } = served;
    let report = report.map(|ClientReport { size, messages, peak, average, mmsgs }| {
        json!({"bytes": size, "messages": messages, "peak": peak, "average": average, "mmsgs": mmsgs})
    });
    json!({
        "perftest": test.name(),
        "device": device,
        "client": client.to_string(),
        "version": version,
        "ip": peer.ip.to_string(),
        "mtu": peer.mtu.bytes(),
        "messages": messages,
        "report": report,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::options::{Cli, RociCommand};

    fn options(line: &str) -> PerfOptions {
        let cli = Cli::try_parse_from(["roci", "perf"].into_iter().chain(line.split(' '))).expect("options");
        let RociCommand::Perf(options) = cli.command else { panic!("another command") };
        options
    }

    #[test]
    fn the_invitation_has_the_options_that_the_client_needs() {
        let invite = |line: &str, place: &str| {
            let options = options(line);
            invitation(options.perftest.expect("a test"), &options, place.parse().expect("a place"))
        };
        let plain = invite("--perftest send_bw", "0.0.0.0:18515");
        assert!(plain.ends_with("ib_send_bw -F -x INDEX_OF_ROCE_V2_GID THIS_HOST"), "{plain}");
        let options = invite("--perftest write_lat --size 4KiB --iters 50", "10.0.0.1:4800");
        assert!(
            options.ends_with("ib_write_lat -F -x INDEX_OF_ROCE_V2_GID -s 4096 -n 50 -p 4800 10.0.0.1"),
            "{options}"
        );
        let all = invite("--perftest read_bw --all", "0.0.0.0:18515");
        assert!(all.contains(" -a "), "{all}");
    }

    #[test]
    fn a_size_is_the_clients_default_unless_an_option_sets_it() {
        let chosen = |line: &str| {
            let options = options(line);
            sizes(options.perftest.expect("a test"), &options)
        };
        assert!(matches!(chosen("--perftest send_lat"), Ok(MessageSizes::One(2))));
        assert!(matches!(chosen("--perftest write_bw"), Ok(MessageSizes::One(65_536))));
        assert!(matches!(chosen("--perftest atomic_bw"), Ok(MessageSizes::One(8))));
        assert!(matches!(chosen("--perftest read_bw --size 1MiB"), Ok(MessageSizes::One(0x10_0000))));
        assert!(matches!(chosen("--perftest read_bw --all"), Ok(MessageSizes::All)));
        assert!(chosen("--perftest read_bw --size 1,2").is_err());
    }

    #[test]
    fn the_result_is_printed_as_text_and_as_json() {
        let mut served = Served {
            client: "10.0.0.2:4242".parse().expect("an address"),
            version: "6.06".to_owned(),
            peer: "02:00:00:00:00:02 10.77.0.2 17 0 4096 16 verbs".parse().expect("an address"),
            messages: Some(1000),
            report: None,
        };
        let text = words(Test::SendBw, "af_packet:eth1", &served);
        let head = "device af_packet:eth1, ib_send_bw 6.06 at 10.0.0.2:4242, GID of 10.77.0.2, path MTU 4096: ";
        assert_eq!(text, format!("{head}1000 messages came"));
        let object = row(Test::SendBw, "vhost", &served);
        assert_eq!(
            (&object["messages"], &object["report"], &object["mtu"]),
            (&1000.into(), &Value::Null, &4096.into())
        );
        served.messages = None;
        served.report =
            Some(ClientReport { size: 65_536, messages: 20, peak: 58.3, average: f64::INFINITY, mmsgs: 0.5 });
        let text = words(Test::WriteBw, "af_packet:eth1", &served);
        assert!(text.contains("20 messages of 65536 bytes, peak 58.30, average inf"), "{text}");
        let object = row(Test::WriteBw, "vhost", &served);
        assert_eq!((&object["report"]["peak"], &object["report"]["average"]), (&58.3.into(), &Value::Null));
    }
}
