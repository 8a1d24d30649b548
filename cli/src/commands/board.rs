//! `roci board`: serves the job of ranks that are started by hand, and says which variables they need.

use std::fs::DirBuilder;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use roci_launcher::{Board, JOB, RANK, Reminder, SIZE, TOKEN, Token, is_private, own_addresses};

use crate::failure::{Failure, FailureContext};
use crate::options::BoardOptions;
use crate::output;

/// How often the job is looked at.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) fn run(options: &BoardOptions) -> Result<ExitCode, Failure> {
    let size = options.ranks as usize;
    let (board, place, token) = match options.listen.parse::<SocketAddr>() {
        Ok(address) => serve_hosts(size, address)?,
        Err(_) if options.listen.contains('/') => serve_this_host(size, &options.listen)?,
        Err(_) => {
            let listen = &options.listen;
            return Err(Failure::new(format!(
                "cannot listen at {listen}: it is no ADDRESS:PORT, and no path of a socket"
            )));
        }
    };
    output::line(format!("export {JOB}={place} {SIZE}={size}"))?;
    if !token.as_str().is_empty() {
        output::line(format!("export {TOKEN}={}", token.as_str()))?;
    }
    output::line(format!("# of each rank, its number from 0: export {RANK}=.."))?;
    let mut reminder = Reminder::start();
    while !board.outlast_all(LOOK) {
        if let (Some(waited), missing @ 1..) = (reminder.due(), board.missing()) {
            let waited = waited.as_secs();
            output::complain(format!("the board has waited {waited} s for {missing} of {size} ranks to come"));
        }
    }
    if !place.starts_with("tcp:") {
        // Ours, and of no use any more.
        let _ = std::fs::remove_file(&place);
    }
    Ok(ExitCode::SUCCESS)
}

/// For ranks on any host, which know a token.
fn serve_hosts(size: usize, address: SocketAddr) -> Result<(Board, String, Token), Failure> {
    let mut token = Token::from_environment()?;
    if token.as_str().is_empty() {
        token = Token::random();
    }
    let doing = || format!("cannot listen at {address}");
    let listener = TcpListener::bind(address).context(doing())?;
    let address = listener.local_addr().context(doing())?;
    let board = Board::new(size, token.clone());
    board.serve_tcp(listener).context(doing())?;
    // The address of all interfaces leads nowhere.
    let ip = if address.ip().is_unspecified() { first_address(address.ip().is_ipv4()) } else { address.ip() };
    Ok((board, format!("tcp:{}", SocketAddr::new(ip, address.port())), token))
}

fn first_address(is_ipv4: bool) -> IpAddr {
    let fits = |address: &SocketAddr| address.is_ipv4() || !is_ipv4;
    own_addresses(0).iter().find(|address| fits(address)).map_or(IpAddr::from([127, 0, 0, 1]), SocketAddr::ip)
}

/// For ranks of this user's on this host, whom the kernel vouches for. Where the socket is, their own are, too.
fn serve_this_host(size: usize, path: &str) -> Result<(Board, String, Token), Failure> {
    let doing = || format!("cannot listen at {path}");
    let directory = Path::new(path).parent().filter(|directory| !directory.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    if !directory.exists() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory).context(doing())?;
    }
    if !is_private(directory) {
        let shown = directory.display();
        return Err(Failure::new(format!(
            "cannot listen at {path}: others may enter {shown}, where the sockets of all ranks are: chmod 700 {shown}, or name another one"
        )));
    }
    let board = Board::new(size, Token::default());
    board.serve_unix(Path::new(path)).context(doing())?;
    Ok((board, path.to_owned(), Token::default()))
}
