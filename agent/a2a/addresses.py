"""Post to URLs that strangers gave: only to public addresses, and only to those that were checked.

A name can lead to a public address while it is checked, and to this machine a moment later. So it is resolved once, and
the request goes to the checked address, with the Host and the certificate of the name.
"""

import asyncio
import ipaddress
import socket
from typing import Any

import httpx

GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""Addresses that lead to the IPv4 address in their last 32 bits."""
NOT_PUBLIC = [ipaddress.IPv6Network(each) for each in ("2001::/23", "2002::/16")]
"""Tunnels (Teredo, 6to4), which may lead to any IPv4 address, and addresses for special purposes."""


def is_public(address: str) -> bool:
    """Return whether an IP address belongs to one machine of the public internet."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.scope_id is not None:
            return False
        if ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        elif ip in NAT64:
            ip = ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)
        elif ip not in GLOBAL_UNICAST or any(ip in network for network in NOT_PUBLIC):
            return False
    return ip.is_global and not (ip.is_multicast or ip.is_reserved)


async def public_addresses(url: str) -> list[str]:
    """Return the IP addresses of a URL; none if one of them is not public, or if its name cannot be resolved."""
    try:
        parsed = httpx.URL(url)
        if parsed.scheme not in ("http", "https") or not parsed.raw_host:
            return []
        host, port = parsed.raw_host.decode(), parsed.port or (443 if parsed.scheme == "https" else 80)
        infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, ValueError, httpx.InvalidURL):
        return []
    addresses = [str(each[4][0]) for each in infos]
    return [*dict.fromkeys(addresses)] if all(map(is_public, addresses)) else []


async def post_to(
    http: httpx.AsyncClient, url: str, address: str, headers: dict[str, str], body: Any
) -> httpx.Response:
    """Post JSON to a URL at one of its IP addresses."""
    parsed = httpx.URL(url)
    host = parsed.raw_host.decode()
    shown = f"[{host}]" if ":" in host else host
    named = {**headers, "Host": shown if parsed.port is None else f"{shown}:{parsed.port}"}
    return await http.post(parsed.copy_with(host=address), json=body, headers=named, extensions={"sni_hostname": host})
