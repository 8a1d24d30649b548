//! Mail between ranks over a real board.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::*;

/// Longer than anything here takes: who waits so long waits for ever.
const PATIENCE: Duration = Duration::from_mins(1);

struct World {
    board: Board,
    place: String,
    token: Token,
    size: usize,
    _directory: tempfile::TempDir,
}

impl World {
    fn new(size: usize) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().join("job").display().to_string();
        let token = Token::random();
        let board = Board::new(size, token.clone());
        board.serve_unix(Path::new(&place)).expect("a socket");
        Self { board, place, token, size, _directory: directory }
    }

    fn join(&self, rank: Rank) -> Job {
        // One that has hung up is there until the board's thread has seen that.
        assert!(self.board.outlast(rank, PATIENCE), "rank {rank} is in the job");
        Job::connect(&self.place, &self.token, rank, self.size, PATIENCE).expect("a board")
    }

    /// A rank that says what it likes.
    fn guest(&self, rank: Rank) -> Stranger {
        let mut guest = self.stranger();
        guest.say(format!("hello {rank} {}\n", self.token.as_str()));
        assert!(guest.hear().starts_with("ok "));
        guest
    }

    fn stranger(&self) -> Stranger {
        let stream = UnixStream::connect(&self.place).expect("a board");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Stranger { lines: BufReader::new(stream.try_clone().expect("a socket")), stream }
    }
}

#[test]
fn ranks_that_come_again_find_a_board_without_what_they_left() {
    let world = World::new(2);
    for generation in 1..=3 {
        let mut jobs = [0, 1].map(|rank| world.join(rank));
        assert_eq!(jobs.each_ref().map(Job::generation), [generation; 2]);
        let value = generation.to_string();
        jobs[0].put("key", &value).expect("the key is free again");
        assert_eq!(jobs[1].get("key").expect("it is there"), value);
    }
}

#[test]
fn a_launcher_outlasts_a_rank_until_it_hangs_up() {
    let world = World::new(2);
    assert!(world.board.outlast(0, PATIENCE), "it has not come");
    let (job, _other) = (world.join(0), world.join(1));
    assert!(!world.board.outlast(0, Duration::from_millis(50)), "it is there");
    let board = world.board.clone();
    let waiter = std::thread::spawn(move || board.outlast(0, PATIENCE));
    drop(job);
    assert!(waiter.join().expect("no panic"), "it has hung up");
}

#[test]
fn a_rank_that_comes_again_first_waits_for_what_its_own_generation_leaves() {
    let world = World::new(2);
    let (mut first, second) = (world.join(0), world.join(1));
    first.put("key", "old").expect("room");
    drop(second);
    let mut early = world.join(1);
    let reader = std::thread::spawn(move || early.get("key").expect("it comes"));
    drop(first);
    world.join(0).put("key", "new").expect("room");
    assert_eq!(reader.join().expect("no panic"), "new");
}

/// A client that says what it likes.
struct Stranger {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Stranger {
    fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the board listens");
    }

    /// The next line, without its end; empty where the board has hung up.
    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("the board answers");
        line.trim_end_matches('\n').into()
    }
}

/// Waits for mail, as a rank does that has nothing else to do.
fn wait_for_mail(job: &mut Job) -> (Rank, String) {
    loop {
        if let Some(mail) = job.poll_mail().expect("a board") {
            return mail;
        }
        std::thread::yield_now();
    }
}

#[test]
fn mail_reaches_a_rank_that_expects_nothing_in_order() {
    let world = World::new(2);
    let (mut first, mut second) = (world.join(0), world.join(1));
    assert_eq!(second.poll_mail().expect("a board"), None);
    for number in 0..100 {
        first.send_mail(1, &format!("number {number}")).expect("room");
    }
    for number in 0..100 {
        assert_eq!(wait_for_mail(&mut second), (0, format!("number {number}")));
    }
    second.send_mail(1, "").expect("a rank may write to itself, and nothing");
    assert_eq!(wait_for_mail(&mut second), (1, String::new()));
    assert_eq!(second.poll_mail().expect("a board"), None);
}

#[test]
fn the_longest_text_arrives_and_a_longer_one_or_two_lines_are_refused_at_once() {
    let world = World::new(2);
    let (mut first, mut second) = (world.join(0), world.join(1));
    let longest = "ü".repeat(MAIL_TEXT_LIMIT / 2);
    first.send_mail(1, &longest).expect("room");
    for text in [longest.clone() + "x", "two\nlines".into()] {
        assert!(matches!(first.send_mail(1, &text), Err(JobError::Unmailed { to: 1, .. })));
    }
    assert_eq!(wait_for_mail(&mut second), (0, longest));
    first.check().expect("the job goes on");
}

#[test]
fn mail_before_its_rank_has_come_waits_for_it() {
    let world = World::new(2);
    let mut first = world.join(0);
    first.send_mail(1, "early").expect("room");
    let mut second = world.join(1);
    first.send_mail(1, "late").expect("room");
    assert_eq!(wait_for_mail(&mut second), (0, "early".into()));
    assert_eq!(wait_for_mail(&mut second), (0, "late".into()));
}

#[test]
fn mail_to_no_rank_is_an_error_and_the_job_goes_on() {
    let world = World::new(2);
    let mut first = world.join(0);
    let error = first.send_mail(2, "x").expect_err("there is no such rank");
    assert_eq!(error.to_string(), "no mail to rank 2: '2' is not a rank below 2");
    first.put("key", "value").expect("room");
}

#[test]
fn mail_is_sent_and_received_while_a_barrier_is_under_way() {
    let world = World::new(2);
    let (mut first, mut second) = (world.join(0), world.join(1));
    first.start_barrier().expect("a board");
    assert!(!first.poll_barrier().expect("the other has not come"));
    // The one writes from within the barrier; the other comes only when it has had its answer.
    second.send_mail(0, "where are you").expect("room");
    assert_eq!(wait_for_mail(&mut first), (1, "where are you".into()));
    first.send_mail(1, "in the barrier").expect("room");
    assert_eq!(wait_for_mail(&mut second), (0, "in the barrier".into()));
    second.start_barrier().expect("a board");
    // The barrier's end now crosses mail in both directions.
    first.send_mail(1, "crossing").expect("room");
    second.send_mail(0, "crossing").expect("room");
    for job in [&mut first, &mut second] {
        while !job.poll_barrier().expect("both have come") {}
        job.check().expect("its answer is its own");
        assert_eq!(wait_for_mail(job).1, "crossing");
    }
}

#[test]
fn a_look_does_not_wait() {
    let world = World::new(2);
    let (mut first, mut second) = (world.join(0), world.join(1));
    assert_eq!(first.look("key").expect("a board"), None);
    second.put("key", "=two words").expect("room");
    assert_eq!(first.look("key").expect("a board").as_deref(), Some("=two words"));
    second.put("empty", "").expect("room");
    assert_eq!(first.look("empty").expect("a board").as_deref(), Some(""));
}

#[test]
fn mail_that_comes_in_between_is_no_answer() {
    let world = World::new(2);
    let (mut first, mut second) = (world.join(0), world.join(1));
    for number in 0..20 {
        first.send_mail(1, "ok wrong").expect("room");
        first.put(&format!("key{number}"), "right").expect("room");
        assert_eq!(second.get(&format!("key{number}")).expect("it is there"), "right");
    }
    (0..20).for_each(|_| assert_eq!(wait_for_mail(&mut second), (0, "ok wrong".into())));
}

#[test]
fn a_rank_that_has_died_gets_no_mail_and_may_come_again() {
    let world = World::new(2);
    let mut first = world.join(0);
    drop(world.join(1));
    // Until its end is noticed, mail to it is taken, and lost with it.
    let error = loop {
        if let Err(error) = first.send_mail(1, "lost") {
            break error.to_string();
        }
    };
    assert_eq!(error, "no mail to rank 1: it has gone");
    let mut again = world.join(1);
    first.send_mail(1, "found").expect("room");
    assert_eq!(wait_for_mail(&mut again), (0, "found".into()));
}

#[test]
fn a_rank_that_dies_in_a_barrier_is_not_counted_and_the_others_hear_of_its_end() {
    let world = World::new(2);
    let (mut first, mut second) = (world.join(0), world.join(1));
    second.start_barrier().expect("a board");
    drop(second);
    while first.send_mail(1, "still there?").is_ok() {}
    assert_eq!(first.barrier().expect_err("the only other rank has left").to_string(), LEFT);
    world.board.depart(1, "rank 1 exited with status 0");
    let why = first.barrier().expect_err("the only other rank has left").to_string();
    assert_eq!(why, "the job has failed: rank 1 exited with status 0");
}

const LEFT: &str = "the job has failed: rank 1 has left the job";

/// As where a shell lives on behind it.
#[test]
fn who_hangs_up_is_missed_by_its_generation_and_by_no_other() {
    let world = World::new(3);
    let [mut first, second, mut third] = [0, 1, 2].map(|rank| world.join(rank));
    first.start_barrier().expect("a board");
    drop(second);
    let left = Departure { rank: 1, why: "rank 1 has left the job".into(), is_ill: false };
    let ended = loop {
        if let Err(error) = first.poll_barrier() {
            break error.to_string();
        }
    };
    assert_eq!(ended, LEFT);
    for job in [&mut first, &mut third] {
        assert_eq!(wait_for_departure(job), left);
        assert_eq!(job.take_departure(), None);
        assert_eq!(job.get("key").expect_err("no rank puts this key").to_string(), LEFT);
        assert_eq!(job.check_all_present().expect_err("one has left").to_string(), LEFT);
        job.check().expect("the job goes on");
    }
    let mut again = world.join(1);
    again.start_barrier().expect("a board");
    assert_eq!(first.barrier().expect_err("that is another generation's").to_string(), LEFT);
    drop((first, third));
    let mut others = [0, 2].map(|rank| world.join(rank));
    for job in &mut others {
        job.start_barrier().expect("a board");
    }
    for job in others.iter_mut().chain([&mut again]) {
        while !job.poll_barrier().expect("all are there") {}
        assert_eq!(job.take_departure(), None);
    }
}

#[test]
fn a_rank_is_one_live_session_below_the_size() {
    let world = World::new(2);
    let first = world.join(0);
    let refusal =
        |rank| Job::connect(&world.place, &world.token, rank, 3, PATIENCE).err().expect("refused").to_string();
    assert_eq!(refusal(0), "the launcher refuses rank 0: rank 0 is here already");
    assert_eq!(refusal(2), "the launcher refuses rank 2: '2' is not a rank below 2");
    // The one that was refused has not taken the place of the one that is here.
    world.join(1).send_mail(0, "x").expect("room");
    let mut first = first;
    assert_eq!(wait_for_mail(&mut first), (1, "x".into()));
}

#[test]
fn who_does_not_say_hello_with_the_token_is_hung_up_on() {
    let world = World::new(2);
    let token = world.token.as_str();
    for (said, answer) in [
        ("status\n".into(), "error it does not say hello"),
        ("\n".into(), "error it does not say hello"),
        (format!("hello 1 {}\n", &token[1..]), "error it does not have the job's token"),
        ("hello 1\n".into(), "error it does not have the job's token"),
        ("hello\n".into(), "error it does not say hello"),
        (format!("mail 1 x\nhello 1 {token}\n"), "error it does not say hello"),
        ("x".repeat(LINE_LIMIT as usize), "error it does not say hello"),
    ] {
        let mut stranger = world.stranger();
        stranger.say(&said);
        assert_eq!((stranger.hear().as_str(), stranger.hear().as_str()), (answer, ""), "{said:?}");
    }
    world.join(1).check().expect("no stranger has taken rank 1");
}

/// Some hang up at once, some say nothing, some say what makes no sense.
#[test]
fn a_thousand_strangers_keep_no_rank_from_its_place_and_fail_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let token = Token::random();
    let board = Board::new(2, token.clone());
    board.serve_tcp(listener).expect("a thread");
    let join = |rank| Job::connect(&format!("tcp:{address}"), &token, rank, 2, PATIENCE).expect("a board");
    let mut first = join(0);
    let mut silent = Vec::new();
    for number in 0..1000 {
        let mut stream = TcpStream::connect(address).expect("the board accepts");
        match number % 3 {
            0 => drop(stream),
            1 => silent.push(stream),
            // It may have been hung up on before.
            _ => drop(stream.write_all(b"GET / HTTP/1.1\r\n\r\n")),
        }
    }
    let mut second = join(1);
    second.send_mail(0, "here").expect("room");
    assert_eq!(wait_for_mail(&mut first), (1, "here".into()));
    first.check_all_present().expect("no stranger is a rank");
    // Who says nothing is given up in the end.
    let mut last = silent.pop().expect("some");
    assert_eq!(last.read(&mut [0; 1]).expect("the board hangs up"), 0);
    first.check().expect("the job goes on");
}

#[test]
fn a_rank_that_does_not_read_delays_no_other_rank_and_loses_nothing() {
    let world = World::new(3);
    let mut sleeper = world.guest(2);
    let (mut first, mut second) = (world.join(0), world.join(1));
    let padding = "x".repeat(MAIL_TEXT_LIMIT - 8);
    let mut taken = 0;
    let refusal = loop {
        match first.send_mail(2, &format!("{taken} {padding}")) {
            Ok(()) => taken += 1,
            Err(error) => break error.to_string(),
        }
    };
    assert_eq!(refusal, "no mail to rank 2: it does not read its mail, and no more can wait");
    assert!(taken >= MAIL_LIMIT);
    first.send_mail(1, "the others").expect("room");
    assert_eq!(wait_for_mail(&mut second), (0, "the others".into()));
    for number in 0..taken {
        assert_eq!(sleeper.hear(), format!("mail 0 {number} {padding}"));
    }
    first.send_mail(2, "awake").expect("room again");
    assert_eq!(sleeper.hear(), "mail 0 awake");
}

#[test]
fn a_caller_that_does_not_poll_gets_an_error_and_loses_nothing() {
    let world = World::new(2);
    let (mut first, mut second) = (world.join(0), world.join(1));
    let more = MAIL_LIMIT + 100;
    for number in 0..more {
        first.send_mail(1, &number.to_string()).expect("the other reads, or its box has room");
        // What the other asks makes it read; it sets the mail aside, until there is no room.
        if let Err(error) = second.check() {
            assert!(matches!(error, JobError::MailOverflow(MAIL_LIMIT)), "{error}");
        }
    }
    assert!(matches!(second.check(), Err(JobError::MailOverflow(MAIL_LIMIT))));
    for number in 0..more {
        assert_eq!(wait_for_mail(&mut second), (0, number.to_string()));
    }
    second.put("key", "value").expect("room");
    assert_eq!(second.get("key").expect("no answer of before is in the way"), "value");
}

#[test]
fn a_hostile_client_gets_errors_and_the_others_go_on() {
    let world = World::new(2);
    let mut first = world.join(0);
    for (garbage, answer) in [
        ("", "error '' is not a rank below 2"),
        ("me", "error 'me' is not a rank below 2"),
        ("-1", "error '-1' is not a rank below 2"),
        ("18446744073709551616", "error '18446744073709551616' is not a rank below 2"),
        ("0", "error rank 0 is here already"),
    ] {
        let mut stranger = world.stranger();
        stranger.say(format!("hello {garbage} {}\nput key value\n", world.token.as_str()));
        assert_eq!((stranger.hear().as_str(), stranger.hear().as_str()), (answer, ""), "{garbage:?}");
    }
    let mut stranger = world.guest(1);
    for (garbage, answer) in [
        ("\n", "error '' is not a request"),
        ("hello\n", "error hello was said before"),
        ("hello 1\n", "error hello was said before"),
        ("hello 1 2\n", "error 'hello' is not a request"),
        ("mailed\n", "error 'mailed' is not a request"),
        ("\0\u{7f}\r\n", "error '\0\u{7f}\r' is not a request"),
    ] {
        stranger.say(garbage);
        assert_eq!(stranger.hear(), answer, "{garbage:?}");
    }
    stranger.say("mail\nmail 0\nmail x y\nmail 2 y\n");
    let answers: Vec<_> = (0..4).map(|_| stranger.hear()).collect();
    assert!(answers.iter().all(|line| line.starts_with("unmailed ")), "{answers:?}");
    stranger.say("x".repeat(LINE_LIMIT as usize));
    assert!(stranger.hear().starts_with("error a request is a line of at most"));
    assert_eq!(stranger.hear(), "", "the board has hung up");
    let mut stranger = world.guest(1);
    stranger.say(b"mail \xff\xfe\n");
    assert_eq!(stranger.hear(), "", "what is not UTF-8 ends the session");
    first.check().expect("the job goes on");
    assert_eq!(first.poll_mail().expect("a board"), None);
}

#[test]
fn a_client_that_asks_and_does_not_read_is_not_listened_to_for_ever() {
    let world = World::new(2);
    let mut stranger = world.guest(1);
    // Long enough for a board that reads on; the one that stops never takes any more.
    stranger.stream.set_write_timeout(Some(Duration::from_millis(500))).expect("a socket");
    // The sockets hold a part of this; a board that queued without a limit would swallow all of it.
    let flood = "status\n".repeat(1 << 10);
    let is_stuck = (0..256).any(|_| stranger.stream.write_all(flood.as_bytes()).is_err());
    assert!(is_stuck, "the board stops reading");
    world.join(0).check().expect("the others go on");
}

#[test]
fn mail_goes_over_tcp_too_and_a_death_fails_the_job() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let place = format!("tcp:{}", listener.local_addr().expect("an address"));
    let board = Board::new(2, Token::default());
    board.serve_tcp(listener).expect("a thread");
    let join = |rank| Job::connect(&place, &Token::default(), rank, 2, PATIENCE).expect("a board");
    let (mut first, mut second) = (join(0), join(1));
    first.send(1, "over TCP").expect("room");
    assert_eq!(wait_for_mail(&mut second), (0, "over TCP".into()));
    first.start_barrier().expect("a board");
    drop(second);
    let error = loop {
        if let Err(error) = first.poll_barrier() {
            break error.to_string();
        }
    };
    assert_eq!(error, LEFT);
}

/// Though ranks are still in the job before.
#[test]
fn who_connects_to_the_next_board_at_a_listener_is_in_its_job() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let place = format!("tcp:{}", listener.local_addr().expect("an address"));
    let mut jobs = Vec::new();
    for _ in 0..20 {
        let board = Board::new(2, Token::default());
        board.serve_tcp(listener.try_clone().expect("a socket")).expect("a thread");
        jobs.push(Job::connect(&place, &Token::default(), 0, 2, PATIENCE).expect("a board"));
        assert_eq!(board.missing(), 1, "in job {}", jobs.len());
    }
}

fn wait_for_departure(job: &mut Job) -> Departure {
    loop {
        assert_eq!(job.poll_mail().expect("a board"), None);
        if let Some(departure) = job.take_departure() {
            return departure;
        }
        std::thread::yield_now();
    }
}

/// Also who comes later; and the job as a whole goes on.
#[test]
fn everybody_hears_of_every_rank_that_has_gone_once() {
    let world = World::new(4);
    let mut early = world.join(0);
    world.board.depart(2, "rank 2 exited with status 0");
    world.board.fail_rank(3, "rank 3 exited with status 1");
    world.board.fail_rank(3, "a rank has gone");
    let mut late = world.join(1);
    for job in [&mut early, &mut late] {
        let mut departures = [wait_for_departure(job), wait_for_departure(job)];
        departures.sort_by_key(|departure| departure.rank);
        let departure = |rank, why: &str, is_ill| Departure { rank, why: why.into(), is_ill };
        let both =
            [departure(2, "rank 2 exited with status 0", false), departure(3, "rank 3 exited with status 1", true)];
        assert_eq!(departures, both);
        job.check().expect("the job goes on");
        assert_eq!(job.take_departure(), None);
        assert_eq!(job.barrier().expect_err("not all").to_string(), "the job has failed: rank 3 exited with status 1");
    }
}
