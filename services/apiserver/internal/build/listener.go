package build

import (
	"log/slog"
	"net"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/serving"
	"binnacle/libs/serving/health"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/server"
)

// listener is the bound port, with the server that will accept requests on it.
type listener struct {
	server *serving.Server
	health *health.Registry
	// port is the port that the server listens on, also if the configured port is 0.
	port int
	// address is the host:port at which clients reach this server.
	address string
}

// newListener binds the port. It comes first, so that a port in use fails the start at once.
func newListener(o *config.Options, log *slog.Logger, metrics *prometheus.Registry, life *lifecycle) (*listener, error) {
	clients, err := clientCertificates(o)
	if err != nil {
		return nil, err
	}
	l := &listener{health: health.New(health.Config{LivezGracePeriod: o.Serving.LivezGracePeriod, Logger: log})}
	l.server, err = serving.NewServer(serving.Config{
		Options: o.Serving, Logger: log, Health: l.health,
		Clients: clients, Metrics: metrics, HandshakeErrors: server.NewHandshakeErrors(metrics),
	})
	if err != nil {
		return nil, err
	}
	life.onClose(func() { _ = l.server.Close() })
	l.port = o.Serving.SecurePort
	if a, ok := l.server.Addr().(*net.TCPAddr); ok {
		l.port = a.Port
	}
	l.address = advertisedAddress(o, l.port)
	return l, nil
}

// advertisedAddress returns the host:port at which clients reach this server.
func advertisedAddress(o *config.Options, port int) string {
	host := o.ExternalHostname
	if host == "" {
		return net.JoinHostPort(o.AdvertiseAddress.String(), strconv.Itoa(port))
	}
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(port))
}
