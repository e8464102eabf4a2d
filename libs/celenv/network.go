package celenv

import (
	"fmt"
	"net/netip"
	"net/url"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

var (
	addressType = cel.OpaqueType("net.IP")
	networkType = cel.OpaqueType("net.CIDR")
)

// bitsPerByte converts prefix lengths to sizes.
const bitsPerByte = 8

// address is an IP address.
type address struct {
	opaque
	ip netip.Addr
}

func newAddress(ip netip.Addr) *address {
	return &address{opaque: opaque{kind: addressType, text: ip.String}, ip: ip}
}

// ConvertToType implements ref.Val.
func (a *address) ConvertToType(to ref.Type) ref.Val { return a.convert(a, to) }

// Value implements ref.Val.
func (a *address) Value() any { return a.ip }

// Size implements traits.Sizer. It returns the size in bytes.
func (a *address) Size() ref.Val { return types.Int((a.ip.BitLen() + bitsPerByte - 1) / bitsPerByte) }

// Equal implements ref.Val.
func (a *address) Equal(other ref.Val) ref.Val {
	o, ok := other.(*address)
	if !ok {
		return types.ValOrErr(other, "no such overload")
	}
	return types.Bool(a.ip == o.ip)
}

// network is an IP address with a prefix length.
type network struct {
	opaque
	prefix netip.Prefix
}

func newNetwork(p netip.Prefix) *network {
	return &network{opaque: opaque{kind: networkType, text: p.String}, prefix: p}
}

// ConvertToType implements ref.Val.
func (n *network) ConvertToType(to ref.Type) ref.Val { return n.convert(n, to) }

// Value implements ref.Val.
func (n *network) Value() any { return n.prefix }

// Size implements traits.Sizer. It returns the size of the prefix in bytes.
func (n *network) Size() ref.Val {
	return types.Int((n.prefix.Bits() + bitsPerByte - 1) / bitsPerByte)
}

// Equal implements ref.Val.
func (n *network) Equal(other ref.Val) ref.Val {
	o, ok := other.(*network)
	if !ok {
		return types.ValOrErr(other, "no such overload")
	}
	return types.Bool(n.prefix == o.prefix)
}

// networkLibrary provides ip, cidr and the functions of addresses and networks.
func networkLibrary() []cel.EnvOption {
	text := []*cel.Type{cel.StringType}
	predicate := func(name, overload string, is func(netip.Addr) bool) cel.EnvOption {
		return cel.Function(name, cel.MemberOverload(overload, []*cel.Type{addressType}, cel.BoolType,
			unary(func(a *address) ref.Val { return types.Bool(is(a.ip)) })))
	}
	return []cel.EnvOption{
		cel.Types(addressType, networkType),
		cel.Function("ip",
			cel.Overload("string_to_ip", text, addressType, cel.UnaryBinding(toAddress)),
			cel.MemberOverload("cidr_ip", []*cel.Type{networkType}, addressType,
				unary(func(n *network) ref.Val { return newAddress(n.prefix.Addr()) }))),
		cel.Function("isIP", cel.Overload("is_ip", text, cel.BoolType,
			unary(func(s types.String) ref.Val { _, err := parseAddress(string(s)); return types.Bool(err == nil) }))),
		cel.Function("ip.isCanonical", cel.Overload("ip_is_canonical", text, cel.BoolType, unary(isCanonical))),
		cel.Function("family", cel.MemberOverload("ip_family", []*cel.Type{addressType}, cel.IntType, unary(addressFamily))),
		predicate("isUnspecified", "ip_is_unspecified", netip.Addr.IsUnspecified),
		predicate("isLoopback", "ip_is_loopback", netip.Addr.IsLoopback),
		predicate("isLinkLocalMulticast", "ip_is_link_local_multicast", netip.Addr.IsLinkLocalMulticast),
		predicate("isLinkLocalUnicast", "ip_is_link_local_unicast", netip.Addr.IsLinkLocalUnicast),
		predicate("isGlobalUnicast", "ip_is_global_unicast", netip.Addr.IsGlobalUnicast),
		cel.Function("cidr", cel.Overload("string_to_cidr", text, networkType, cel.UnaryBinding(toNetwork))),
		cel.Function("isCIDR", cel.Overload("is_cidr", text, cel.BoolType,
			unary(func(s types.String) ref.Val { _, err := parseNetwork(string(s)); return types.Bool(err == nil) }))),
		cel.Function("containsIP",
			cel.MemberOverload("cidr_contains_ip_string", []*cel.Type{networkType, cel.StringType}, cel.BoolType,
				cel.BinaryBinding(
					func(n, v ref.Val) ref.Val { return networkContainsAddress(n, toAddress(v)) })),
			cel.MemberOverload("cidr_contains_ip_ip", []*cel.Type{networkType, addressType}, cel.BoolType,
				cel.BinaryBinding(networkContainsAddress))),
		cel.Function("containsCIDR",
			cel.MemberOverload("cidr_contains_cidr_string", []*cel.Type{networkType, cel.StringType}, cel.BoolType,
				cel.BinaryBinding(
					func(n, v ref.Val) ref.Val { return networkContainsNetwork(n, toNetwork(v)) })),
			cel.MemberOverload("cidr_contains_cidr", []*cel.Type{networkType, networkType}, cel.BoolType,
				cel.BinaryBinding(networkContainsNetwork))),
		cel.Function("prefixLength", cel.MemberOverload("cidr_prefix_length", []*cel.Type{networkType}, cel.IntType,
			unary(func(n *network) ref.Val { return types.Int(n.prefix.Bits()) }))),
		cel.Function("masked", cel.MemberOverload("cidr_masked", []*cel.Type{networkType}, networkType,
			unary(func(n *network) ref.Val { return newNetwork(n.prefix.Masked()) }))),
		cel.Function("string",
			cel.Overload("ip_to_string", []*cel.Type{addressType}, cel.StringType,
				unary(func(a *address) ref.Val { return types.String(a.ip.String()) })),
			cel.Overload("cidr_to_string", []*cel.Type{networkType}, cel.StringType,
				unary(func(n *network) ref.Val { return types.String(n.prefix.String()) }))),
	}
}

// toAddress implements ip.
func toAddress(v ref.Val) ref.Val {
	s, ok := v.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	ip, err := parseAddress(string(s))
	if err != nil {
		return types.NewErr("%v", err)
	}
	return newAddress(ip)
}

// parseAddress parses an IP address. It rejects zones and IPv4-mapped IPv6 addresses.
func parseAddress(s string) (netip.Addr, error) {
	ip, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		return netip.Addr{}, fmt.Errorf("IP Address %q parse error during conversion from string: %w", s, err)
	case ip.Zone() != "":
		return netip.Addr{}, fmt.Errorf("IP address %q with zone value is not allowed", s)
	case ip.Is4In6():
		return netip.Addr{}, fmt.Errorf("IPv4-mapped IPv6 address %q is not allowed", s)
	}
	return ip, nil
}

func isCanonical(s types.String) ref.Val {
	ip, err := parseAddress(string(s))
	if err != nil {
		return types.NewErr("%v", err)
	}
	return types.Bool(ip.String() == string(s))
}

func addressFamily(a *address) ref.Val {
	if a.ip.Is4() {
		return types.Int(4)
	}
	return types.Int(6)
}

// toNetwork implements cidr.
func toNetwork(v ref.Val) ref.Val {
	s, ok := v.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	p, err := parseNetwork(string(s))
	if err != nil {
		return types.NewErr("network address parse error during conversion from string: %v", err)
	}
	return newNetwork(p)
}

func parseNetwork(s string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("network address parse error during conversion from string: %w", err)
	}
	if prefix.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("IPv4-mapped IPv6 address %q is not allowed", s)
	}
	return prefix, nil
}

func networkContainsAddress(v, other ref.Val) ref.Val {
	n, ok := v.(*network)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	a, ok := other.(*address)
	if !ok { // also if the text is not an address; the error does not say so
		return types.NoSuchOverloadErr()
	}
	return types.Bool(n.prefix.Contains(a.ip))
}

func networkContainsNetwork(v, other ref.Val) ref.Val {
	outer, ok := v.(*network)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	inner, ok := other.(*network)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	return types.Bool(outer.prefix.Overlaps(inner.prefix) && outer.prefix.Bits() <= inner.prefix.Bits())
}

var urlType = cel.ObjectType("kubernetes.URL")

// webAddress is a URL.
type webAddress struct {
	opaque
	url *url.URL
	// text is the URL as text. It is built once, because a call can compare a URL with each element
	// of a list.
	text string
}

// ConvertToType implements ref.Val.
func (w *webAddress) ConvertToType(to ref.Type) ref.Val { return w.convert(w, to) }

// Value implements ref.Val.
func (w *webAddress) Value() any { return w.url }

// Equal implements ref.Val.
func (w *webAddress) Equal(other ref.Val) ref.Val {
	o, ok := other.(*webAddress)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	return types.Bool(w.text == o.text)
}

// urlLibrary provides url, isURL and the functions for the parts of a URL.
func urlLibrary() []cel.EnvOption {
	partOf := func(name, overload string, get func(*url.URL) string) cel.EnvOption {
		return cel.Function(name, cel.MemberOverload(overload, []*cel.Type{urlType}, cel.StringType,
			unary(func(w *webAddress) ref.Val { return types.String(get(w.url)) })))
	}
	return []cel.EnvOption{
		cel.Function("url", cel.Overload("string_to_url", []*cel.Type{cel.StringType}, urlType, unary(toURL))),
		cel.Function("isURL", cel.Overload("is_url_string", []*cel.Type{cel.StringType}, cel.BoolType, unary(isURL))),
		partOf("getScheme", "url_get_scheme", func(u *url.URL) string { return u.Scheme }),
		partOf("getHost", "url_get_host", func(u *url.URL) string { return u.Host }),
		partOf("getHostname", "url_get_hostname", (*url.URL).Hostname),
		partOf("getPort", "url_get_port", (*url.URL).Port),
		partOf("getEscapedPath", "url_get_escaped_path", (*url.URL).EscapedPath),
		cel.Function("getQuery", cel.MemberOverload("url_get_query", []*cel.Type{urlType},
			cel.MapType(cel.StringType, cel.ListType(cel.StringType)), unary(queryMap))),
	}
}

// toURL parses an absolute URL or path. url.ParseRequestURI checks whether the text is one, but
// treats a fragment as part of the path.
func toURL(s types.String) ref.Val {
	_, err := url.ParseRequestURI(string(s))
	var u *url.URL
	if err == nil {
		u, err = url.Parse(string(s))
	}
	if err != nil {
		return types.NewErr("URL parse error during conversion from string: %v", err)
	}
	text := u.String()
	return &webAddress{opaque: opaque{kind: urlType, text: func() string { return text }}, url: u, text: text}
}

func isURL(s types.String) ref.Val {
	_, err := url.ParseRequestURI(string(s))
	return types.Bool(err == nil)
}

func queryMap(w *webAddress) ref.Val {
	query := map[ref.Val]ref.Val{}
	for k, v := range w.url.Query() {
		query[types.String(k)] = types.NewStringList(types.DefaultTypeAdapter, v)
	}
	return types.NewRefValMap(types.DefaultTypeAdapter, query)
}
