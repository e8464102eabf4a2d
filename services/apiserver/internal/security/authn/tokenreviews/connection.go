package tokenreviews

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"unsafe"

	"binnacle/libs/serving/conns"
)

// connection caches the key of the last token on a connection: a client sends the same token with
// each request, and hashing it costs more than the rest of the lookup.
type connection struct {
	last atomic.Pointer[hashed]
	from string // the client's network
}

// hashed is a token, for the server's own audiences, with its key.
type hashed struct {
	keys  *keyer
	token string
	key   key
}

type connectionKey struct{}

// WithConnection adds to the context of a connection a cache for the token of its requests. It
// lives as long as the connection.
func WithConnection(ctx context.Context, c net.Conn) context.Context {
	conn := new(connection)
	if c != nil {
		if from, err := netip.ParseAddrPort(c.RemoteAddr().String()); err == nil {
			conn.from = conns.Network(from.Addr())
		}
	}
	return context.WithValue(ctx, connectionKey{}, conn)
}

// networkOf returns the network of the client of a request, or "" if unknown.
func networkOf(ctx context.Context) string {
	if conn, ok := ctx.Value(connectionKey{}).(*connection); ok {
		return conn.from
	}
	return ""
}

// key returns the key of a token for the server's own audiences.
func (c *Cache) key(ctx context.Context, token string) key {
	conn, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok {
		return c.keys.key(token, c.cfg.Audiences)
	}
	if h := conn.last.Load(); h != nil && h.keys == c.keys && same(h.token, token) {
		return h.key
	}
	h := &hashed{keys: c.keys, token: token, key: c.keys.key(token, c.cfg.Audiences)}
	conn.last.Store(h)
	return h.key
}

// same reports whether two texts share the same memory, as repeated HTTP/2 headers do. It does not
// read their bytes, so its timing reveals nothing about them.
func same(a, b string) bool {
	return len(a) == len(b) && unsafe.StringData(a) == unsafe.StringData(b)
}
