//! Frames: bytes to meanings and back. Ethernet, VLAN, IPv4/IPv6, UDP, BTH and its extension headers, ICRC.
