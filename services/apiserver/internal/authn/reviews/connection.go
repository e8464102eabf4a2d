package reviews

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"unsafe"

	"binnacle/libs/serving"
)

// connection remembers the key of the token that came on it last: a client sends
// the same one with each request, and to hash it costs more than all else that is
// done about it.
type connection struct {
	last atomic.Pointer[hashed]
	from string // the network of the client
}

// hashed is a token, for the server's own audiences, and its key.
type hashed struct {
	keys  *keyer
	token string
	key   key
}

type connectionKey struct{}

// WithConnection gives the requests of a connection a place to remember their
// token in, for as long as the connection lasts.
func WithConnection(ctx context.Context, c net.Conn) context.Context {
	conn := new(connection)
	if c != nil {
		if from, err := netip.ParseAddrPort(c.RemoteAddr().String()); err == nil {
			conn.from = serving.Network(from.Addr()).String()
		}
	}
	return context.WithValue(ctx, connectionKey{}, conn)
}

// networkOf is the network of the client that a request came from, "" when nobody knows.
func networkOf(ctx context.Context) string {
	if conn, ok := ctx.Value(connectionKey{}).(*connection); ok {
		return conn.from
	}
	return ""
}

// key of a token for the server's own audiences.
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

// same tells whether two texts are the same memory, as HTTP/2's headers are that
// are repeated. Their bytes are not looked at: the time that this takes tells
// nothing of them.
func same(a, b string) bool {
	return len(a) == len(b) && unsafe.StringData(a) == unsafe.StringData(b)
}
