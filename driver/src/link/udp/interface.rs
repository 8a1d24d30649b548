//! The kernel's interface that an address is on. sysfs would say as much, but shows the interfaces of the network namespace that it was
//! mounted in, which need not be the process's.

use std::ffi::{CStr, CString};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use super::socket::option_of;

/// Returns the MTU of the interface that has this address; every address of 127.0.0.0/8 is the loopback interface's.
///
/// # Errors
/// No interface has it, or the kernel does not say.
pub(super) fn mtu_of(ip: IpAddr) -> io::Result<usize> {
    mtu_of_interface(&name_of(ip)?)
}

/// Returns how long packets may be that leave from one address to another one, by the kernel's routes and by what it has found out
/// of the path; nothing is sent.
///
/// # Errors
/// There is no such address, or no way.
pub(super) fn mtu_towards(own: IpAddr, peer: IpAddr) -> io::Result<usize> {
    // Any port, and one for nothing (RFC 863).
    let socket = UdpSocket::bind((own, 0))?;
    socket.connect((peer, 9))?;
    let (level, name) =
        if own.is_ipv4() { (libc::IPPROTO_IP, libc::IP_MTU) } else { (libc::IPPROTO_IPV6, libc::IPV6_MTU) };
    Ok(usize::try_from(option_of(socket.as_raw_fd(), level, name)?).unwrap_or(0))
}

/// The name of the kernel's interface that has this address, if one has it; every address of 127.0.0.0/8 is the loopback
/// interface's.
pub fn interface_of(ip: IpAddr) -> Option<String> {
    name_of(ip).ok()?.into_string().ok()
}

fn name_of(ip: IpAddr) -> io::Result<CString> {
    if ip.is_loopback() { Ok(c"lo".to_owned()) } else { with_addresses(|list| list.name_of(ip)) }
}

/// Returns the address that packets to other hosts leave from, by the kernel's routes, or that of any interface that leads to
/// some; `None` where there is none but the loopback interface. IPv4 goes before IPv6.
pub(super) fn address_towards_others() -> Option<IpAddr> {
    // Addresses for documentation (RFC 5737, RFC 3849).
    let others: [IpAddr; 2] = [[192, 0, 2, 1].into(), [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into()];
    others.into_iter().find_map(source_for).or_else(|| with_addresses(InterfaceList::any_towards_others).ok())
}

/// The address that packets to another host leave from. Nothing is sent.
fn source_for(other: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = if other.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((other, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|&ip| leads_to_others(ip))
}

/// Whether an address leads to other hosts without the name of an interface beside it.
const fn leads_to_others(ip: IpAddr) -> bool {
    let is_link_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    !(ip.is_unspecified() || ip.is_loopback() || is_link_local)
}

/// The interfaces' addresses as of one moment.
struct InterfaceList(NonNull<libc::ifaddrs>);

/// Calls `action` with the list of the interfaces' addresses.
fn with_addresses<T>(action: impl FnOnce(&InterfaceList) -> io::Result<T>) -> io::Result<T> {
    let mut first = std::ptr::null_mut();
    // SAFETY: `first` is ours, and is written where the call returns 0.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let none = || io::Error::from(io::ErrorKind::AddrNotAvailable);
    action(&InterfaceList(NonNull::new(first).ok_or_else(none)?))
}

impl InterfaceList {
    fn iter(&self) -> impl Iterator<Item = (IpAddr, &CStr)> {
        // SAFETY: the list is whole until it is freed, which its owner does when it is dropped.
        let entry = |entry: NonNull<libc::ifaddrs>| unsafe { &*entry.as_ptr() };
        let entries = std::iter::successors(Some(entry(self.0)), move |last| NonNull::new(last.ifa_next).map(entry));
        // SAFETY: every entry has a name, which ends with a zero byte and lives as long as the list.
        entries.filter_map(|entry| Some((address_of(entry)?, unsafe { CStr::from_ptr(entry.ifa_name) })))
    }

    /// The interface that has this address.
    fn name_of(&self, ip: IpAddr) -> io::Result<CString> {
        let found = self.iter().find(|&(address, _)| address == ip);
        found.map(|(_, name)| name.to_owned()).ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// The first address that leads to other hosts; IPv4 goes before IPv6.
    fn any_towards_others(&self) -> io::Result<IpAddr> {
        let addresses = || self.iter().map(|(ip, _)| ip).filter(|&ip| leads_to_others(ip));
        let first = addresses().find(IpAddr::is_ipv4).or_else(|| addresses().next());
        first.ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }
}

impl Drop for InterfaceList {
    fn drop(&mut self) {
        // SAFETY: the list is `getifaddrs`'s, and nothing of it is used any more.
        unsafe { libc::freeifaddrs(self.0.as_ptr()) };
    }
}

fn address_of(entry: &libc::ifaddrs) -> Option<IpAddr> {
    let address = NonNull::new(entry.ifa_addr)?;
    // SAFETY: an address that is there begins with its family, and is as long as addresses of that family are.
    unsafe {
        match libc::c_int::from(address.as_ref().sa_family) {
            libc::AF_INET => {
                let v4 = address.cast::<libc::sockaddr_in>().as_ref();
                Some(Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()).into())
            }
            libc::AF_INET6 => {
                let v6 = address.cast::<libc::sockaddr_in6>().as_ref();
                Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

fn mtu_of_interface(name: &CStr) -> io::Result<usize> {
    let socket =
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).or_else(|_| UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)))?;
    // SAFETY: a request is plain data, of which all zeros are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let bytes = name.to_bytes_with_nul();
    if bytes.len() > request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    request.ifr_name.iter_mut().zip(bytes).for_each(|(to, &from)| *to = libc::c_char::from_ne_bytes([from]));
    // SAFETY: the descriptor is open; the request is ours, and names an interface in bytes that end with a zero.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has written the MTU.
    usize::try_from(unsafe { request.ifr_ifru.ifru_mtu }).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_its_addresses() {
        let mtu = mtu_of(Ipv4Addr::LOCALHOST.into()).expect("there is one");
        assert!(mtu >= 1280);
        assert_eq!(mtu_of([127, 1, 2, 3].into()).expect("its too"), mtu);
        assert_eq!(interface_of([127, 1, 2, 3].into()).as_deref(), Some("lo"));
        assert_eq!(
            with_addresses(|list| list.name_of(Ipv4Addr::LOCALHOST.into())).expect("it is up"),
            c"lo".to_owned()
        );
    }

    #[test]
    fn an_address_of_another_host_is_on_no_interface() {
        let error = mtu_of([192, 0, 2, 77].into()).expect_err("it is for documentation");
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
        assert_eq!(interface_of([192, 0, 2, 77].into()), None);
    }
}
