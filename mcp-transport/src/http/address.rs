//! Which addresses may be connected to: a decision over an address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A kind of address that a policy can deny. One address may be of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AddressClass {
    /// This machine: `127.0.0.0/8`, `::1`.
    Loopback,
    /// A private network: RFC 1918, shared address space, unique local addresses.
    Private,
    /// `169.254.0.0/16`, `fe80::/10`.
    LinkLocal,
    /// Where clouds hand out credentials to their machines: `169.254.169.254` and its like.
    Metadata,
    /// Anything else that is no host on the public Internet: unspecified, multicast, reserved, for documentation.
    Special,
}

impl AddressClass {
    const ALL: [Self; 5] = [
        Self::Loopback,
        Self::Private,
        Self::LinkLocal,
        Self::Metadata,
        Self::Special,
    ];

    const fn bit(self) -> u8 {
        1 << self as u8
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Loopback => "this machine's own",
            Self::Private => "one of a private network",
            Self::LinkLocal => "link-local",
            Self::Metadata => "one of a cloud's metadata service",
            Self::Special => "no public host's",
        }
    }
}

/// Which addresses may be connected to. The default allows every one.
///
/// It is checked on each address that a host name is resolved to and on each address written in a URL, for the first
/// request as for redirects, and the connection is made to an address that was checked: a name that is resolved to
/// another one a moment later gains nothing. Where a proxy is used, it resolves names itself (but for one of the scheme
/// `socks5`); then only addresses written in a URL are checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AddressPolicy {
    denied: u8,
}

impl AddressPolicy {
    /// Every address may be connected to.
    pub const fn any() -> Self {
        Self { denied: 0 }
    }

    /// Only hosts on the public Internet may be connected to.
    pub const fn public_only() -> Self {
        Self { denied: u8::MAX }
    }

    /// As this one, but without addresses of `class`.
    #[must_use]
    pub const fn deny(self, class: AddressClass) -> Self {
        Self {
            denied: self.denied | class.bit(),
        }
    }

    /// Whether addresses of this class are denied.
    pub(crate) const fn has_denied(self, class: AddressClass) -> bool {
        self.denied & class.bit() != 0
    }

    /// Why the address may not be connected to; `None` if it may.
    pub fn denies(self, address: IpAddr) -> Option<AddressClass> {
        let denied = classes(address) & self.denied;
        AddressClass::ALL
            .into_iter()
            .find(|class| class.bit() & denied != 0)
    }

    /// As [`denies`](Self::denies), in words.
    pub(super) fn check(self, address: IpAddr) -> Result<(), Denied> {
        match self.denies(address) {
            Some(class) => Err(Denied { address, class }),
            None => Ok(()),
        }
    }
}

/// An address that may not be connected to.
#[derive(Debug)]
pub(super) struct Denied {
    address: IpAddr,
    class: AddressClass,
}

impl std::fmt::Display for Denied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { address, class } = self;
        let class = class.name();
        write!(
            f,
            "the address {address} is {class}, which the policy denies"
        )
    }
}

impl std::error::Error for Denied {}

fn classes(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(address) => classes_v4(address),
        IpAddr::V6(address) => classes_v6(address),
    }
}

fn classes_v4(address: Ipv4Addr) -> u8 {
    use AddressClass::{LinkLocal, Loopback, Metadata, Private, Special};
    let own = match address.octets() {
        [127, ..] => Loopback.bit(),
        [10, ..] | [192, 168, ..] => Private.bit(),
        [172, second, ..] if second & 0xf0 == 16 => Private.bit(),
        [100, second, ..] if second & 0xc0 == 64 => Private.bit(),
        [169, 254, ..] => LinkLocal.bit(),
        [0, ..] | [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 51, 100, _] | [203, 0, 113, _] => {
            Special.bit()
        }
        [198, 18 | 19, ..] | [224..=255, ..] => Special.bit(),
        _ => 0,
    };
    let is_metadata = matches!(
        address.octets(),
        [169, 254, 169, 254]
            | [169, 254, 170, 2 | 23]
            | [100, 100, 100, 200]
            | [192, 0, 0, 192]
            | [168, 63, 129, 16]
    );
    own | if is_metadata { Metadata.bit() } else { 0 }
}

fn classes_v6(address: Ipv6Addr) -> u8 {
    use AddressClass::{LinkLocal, Loopback, Metadata, Private, Special};
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        classes_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => Loopback.bit(),
        [0, 0, 0, 0, 0, 0, 0, 0] => Special.bit(),
        // IPv4 in another dress: mapped, compatible, translated, 6to4.
        [0, 0, 0, 0, 0, 0xffff | 0, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            embedded(high, low)
        }
        [0x2002, high, low, ..] => embedded(high, low),
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254 | 0x23] => Private.bit() | Metadata.bit(),
        [0xfe80, .., 0xa9fe, 0xa9fe] => LinkLocal.bit() | Metadata.bit(),
        [first, ..] if first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfec0 => Private.bit(),
        [first, ..] if first & 0xffc0 == 0xfe80 => LinkLocal.bit(),
        // Teredo hides the address that it leads to; documentation; identifiers that are not routed.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Special.bit(),
        [first, ..] if first & 0xe000 == 0x2000 => 0,
        _ => Special.bit(),
    }
}

#[cfg(test)]
mod tests {
    use super::{AddressClass::*, *};

    fn denied(policy: AddressPolicy, address: &str) -> Option<AddressClass> {
        policy.denies(address.parse().expect(address))
    }

    #[test]
    fn only_hosts_of_the_public_internet_are_public() {
        let policy = AddressPolicy::public_only();
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.0.1",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.169.0.1",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00:1450::1",
            "2002:101:101::1",
            "64:ff9b::8.8.8.8",
            "::ffff:8.8.8.8",
        ] {
            assert_eq!(denied(policy, address), None, "{address}");
        }
        for (address, class) in [
            ("127.0.0.1", Loopback),
            ("127.255.0.1", Loopback),
            ("::1", Loopback),
            ("::ffff:127.0.0.1", Loopback),
            ("::127.0.0.1", Loopback),
            ("64:ff9b::127.0.0.1", Loopback),
            ("2002:7f00:1::", Loopback),
            ("10.0.0.1", Private),
            ("172.16.0.1", Private),
            ("172.31.255.255", Private),
            ("192.168.1.1", Private),
            ("100.64.0.1", Private),
            ("fd12::1", Private),
            ("fc00::1", Private),
            ("fec0::1", Private),
            ("::ffff:10.0.0.1", Private),
            ("169.254.0.1", LinkLocal),
            ("169.254.169.254", LinkLocal),
            ("fe80::1", LinkLocal),
            ("febf::1", LinkLocal),
            ("168.63.129.16", Metadata),
            ("0.0.0.0", Special),
            ("0.1.2.3", Special),
            ("224.0.0.1", Special),
            ("255.255.255.255", Special),
            ("198.18.0.1", Special),
            ("::", Special),
            ("ff02::1", Special),
            ("2001:db8::1", Special),
            ("2001:0:1::1", Special),
            ("64:ff9b:1::1", Special),
            ("4000::1", Special),
        ] {
            assert_eq!(denied(policy, address), Some(class), "{address}");
        }
    }

    #[test]
    fn each_class_is_denied_alone() {
        let metadata = AddressPolicy::any().deny(Metadata);
        for address in [
            "169.254.169.254",
            "169.254.170.2",
            "100.100.100.200",
            "fd00:ec2::254",
            "fe80::a9fe:a9fe",
            "::ffff:169.254.169.254",
        ] {
            assert_eq!(denied(metadata, address), Some(Metadata), "{address}");
            assert_eq!(denied(AddressPolicy::any(), address), None);
        }
        for address in ["169.254.1.1", "10.0.0.1", "127.0.0.1", "::1"] {
            assert_eq!(denied(metadata, address), None, "{address}");
        }
        let link_local = AddressPolicy::any().deny(LinkLocal);
        assert_eq!(denied(link_local, "169.254.169.254"), Some(LinkLocal));
    }
}
