package build

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/features"
	"binnacle/libs/serving/tlsfiles"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/server/peers"
)

// newPeers creates the publisher of this replica's address and the client of other replicas, if the
// gate is enabled.
func (d *delegates) newPeers(b *base, o *config.Options, k *caches, s *stores, refuse func(http.ResponseWriter, *http.Request, error)) (err error) {
	if !b.gates.Enabled(features.UnknownVersionInteroperabilityProxy) {
		return nil
	}
	coder := k.core("endpoints").Coder
	port := b.port
	if o.Aggregation.Peers.AdvertisePort != "" {
		if port, err = strconv.Atoi(o.Aggregation.Peers.AdvertisePort); err != nil {
			return fmt.Errorf("--peer-advertise-port: %w", err)
		}
	}
	d.presence = &peers.Presence{
		Store: s.store, Root: b.root, Identity: b.identity, Logger: b.log,
		IP: net.ParseIP(cmp.Or(o.Aggregation.Peers.AdvertiseIP, o.AdvertiseAddress.String())), Port: port,
		Encode: func(e *corev1.Endpoints) ([]byte, error) { return coder.EncodeStored(e) },
		Decode: func(value []byte, revision int64) (*corev1.Endpoints, error) {
			obj, err := coder.DecodeStored(value, revision)
			if err != nil {
				return nil, err
			}
			e, ok := obj.(*corev1.Endpoints)
			if !ok {
				return nil, fmt.Errorf("%T are no endpoints", obj)
			}
			return e, nil
		},
	}
	b.life.whileServing("presence for peers", d.presence.Run)
	if o.Aggregation.Peers.CAFile == "" {
		return nil
	}
	authorities, err := tlsfiles.LoadBundle(o.Aggregation.Peers.CAFile)
	if err != nil {
		return fmt.Errorf("--peer-ca-file: %w", err)
	}
	versions := k.lookup(apiserverinternalv1alpha1.SchemeGroupVersion.WithResource("storageversions"))
	leases := k.lookup(coordinationv1.SchemeGroupVersion.WithResource("leases"))
	d.peers = peers.New(peers.Config{
		Identity: b.identity, Store: versions.Store, Addresses: d.presence.Addresses, Authorities: authorities.Pool,
		Decode: func(e *watchcache.Entry) (*apiserverinternalv1alpha1.StorageVersion, error) {
			obj, err := versions.Coder.DecodeStored(e.Stored(), e.Revision)
			if err != nil {
				return nil, err
			}
			v, ok := obj.(*apiserverinternalv1alpha1.StorageVersion)
			if !ok {
				return nil, fmt.Errorf("%T is no StorageVersion", obj)
			}
			return v, nil
		},
		Exists: func(identity string) bool { // a replica exists while it has a lease
			_, ok := leases.Store.Get(leases.Prefix + metav1.NamespaceSystem + "/" + identity)
			return ok
		},
		Certificate: d.certificate, MaxRequests: o.Requests.MaxPerServer(), MaxPages: o.Bounds.Pages, Refuse: refuse,
		Metrics: peers.NewMetrics(b.metrics), Traces: b.traces, Logger: b.log,
	})
	b.life.whileServing("peers", d.peers.Run)
	b.life.whileServing("authorities of peers", func(ctx context.Context) error { return tlsfiles.Watch(ctx, b.log, authorities) })
	return nil
}
