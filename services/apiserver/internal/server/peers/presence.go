package peers

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/storage"
)

// Times, keys and labels as in Kubernetes: its replicas can read the same keys.
const (
	presenceTTL      = 15 * time.Second
	presenceInterval = 10 * time.Second
	presencePath     = "/peerserverleases/"
	identityLabel    = "apiserverIdentity"
	retryInterval    = time.Second
	leaveTimeout     = 2 * time.Second
)

// Presence publishes the address of this replica and reads the addresses of peers.
type Presence struct {
	Store storage.Interface
	Root  string // prefix of all keys
	// Encode and Decode convert endpoints to and from their stored form.
	Encode func(*corev1.Endpoints) ([]byte, error)
	Decode func(value []byte, revision int64) (*corev1.Endpoints, error)
	// Identity identifies this replica. Peers reach it at IP and Port.
	Identity string
	IP       net.IP
	Port     int
	Logger   *slog.Logger

	// published is set once the address has been written.
	published atomic.Bool
}

// Check is a health check. It fails until the address has been published once, unless the store is
// full.
func (p *Presence) Check(*http.Request) error {
	if !p.published.Load() {
		return errors.New("not finished")
	}
	return nil
}

// Run publishes the address of this replica until ctx ends, and then removes it.
func (p *Presence) Run(ctx context.Context) error {
	for {
		wait := presenceInterval
		if err := p.publishAddress(ctx); err != nil && ctx.Err() == nil {
			p.Logger.Warn("failed to publish the address of this replica; retrying", "error", err)
			wait = retryInterval
			if errors.Is(err, storage.ErrFull) {
				p.published.Store(true) // no other replica could publish its address either
			}
		} else if err == nil {
			p.published.Store(true)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			p.removeAddress(ctx)
			return ctx.Err()
		}
	}
}

// addressKey returns the key of this replica's address.
func (p *Presence) addressKey() string { return p.Root + presencePath + p.Identity }

// publishAddress writes the address of this replica with a TTL.
func (p *Presence) publishAddress(ctx context.Context) error {
	value, err := p.Encode(&corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{identityLabel: p.Identity}},
		Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: p.IP.String()}},
			Ports:     []corev1.EndpointPort{{Name: "https", Port: int32(p.Port), Protocol: corev1.ProtocolTCP}},
		}},
	})
	if err != nil {
		return err
	}
	ttl := storage.WriteOptions{TTL: presenceTTL}
	kv, _, err := p.Store.Get(ctx, p.addressKey(), 0)
	if errors.Is(err, storage.ErrNotFound) {
		_, err = p.Store.Create(ctx, p.addressKey(), value, ttl)
	} else if err == nil {
		_, err = p.Store.Update(ctx, p.addressKey(), value, kv.ModRevision, ttl)
	}
	return err
}

// removeAddress deletes the address of this replica.
func (p *Presence) removeAddress(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	kv, _, err := p.Store.Get(ctx, p.addressKey(), 0)
	if err == nil {
		_, err = p.Store.Delete(ctx, p.addressKey(), kv.ModRevision)
	}
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		p.Logger.Warn("failed to remove the address of this replica; it expires in a few seconds", "error", err)
	}
}

// Addresses returns the addresses of live replicas by identity. It omits unusable addresses.
func (p *Presence) Addresses(ctx context.Context) (map[string]string, error) {
	listed, err := p.Store.List(ctx, p.Root+presencePath, storage.ListOptions{})
	if err != nil {
		return nil, err
	}
	addresses := map[string]string{}
	for _, kv := range listed.Items {
		endpoints, err := p.Decode(kv.Value, kv.ModRevision)
		if err != nil {
			p.Logger.Warn("failed to decode the address of a peer", "key", kv.Key, "error", err)
			continue
		}
		id := endpoints.Labels[identityLabel]
		if id == "" || strings.TrimPrefix(kv.Key, p.Root+presencePath) != id {
			continue
		}
		if address, ok := addressOf(endpoints); ok {
			addresses[id] = address
		}
	}
	return addresses, nil
}

// addressOf returns the host:port in endpoints, and false if it is unusable.
func addressOf(endpoints *corev1.Endpoints) (string, bool) {
	if len(endpoints.Subsets) == 0 || len(endpoints.Subsets[0].Addresses) == 0 || len(endpoints.Subsets[0].Ports) == 0 {
		return "", false
	}
	ip := net.ParseIP(endpoints.Subsets[0].Addresses[0].IP)
	port := endpoints.Subsets[0].Ports[0].Port
	if ip == nil || ip.IsUnspecified() || ip.IsMulticast() || port < 1 || port > 65535 {
		return "", false
	}
	return net.JoinHostPort(ip.String(), strconv.Itoa(int(port))), true
}
