package build

import (
	"cmp"
	"context"
	"crypto/tls"
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
	"binnacle/libs/task"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/controllers/bootstrap"
	"binnacle/services/apiserver/internal/server/peers"
)

// buildPeers creates the publisher of this replica's address and the client of other replicas, if
// the gate is enabled.
func (p *parts) buildPeers(host string) (err error) {
	o := p.options
	if !o.Features.Enabled(features.UnknownVersionInteroperabilityProxy) {
		return nil
	}
	coder := p.codec.Of(p.catalog.Resource(corev1.SchemeGroupVersion.WithResource("endpoints")))
	port := p.base.port
	if o.Peers.AdvertisePort != "" {
		if port, err = strconv.Atoi(o.Peers.AdvertisePort); err != nil {
			return fmt.Errorf("--peer-advertise-port: %w", err)
		}
	}
	p.presence = &peers.Presence{
		Store: p.store, Root: p.base.root, Identity: bootstrap.Identity(host), Logger: p.log,
		IP: net.ParseIP(cmp.Or(o.Peers.AdvertiseIP, o.AdvertiseAddress.String())), Port: port,
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
	if o.Peers.CAFile == "" {
		return nil
	}
	if p.peerCAs, err = tlsfiles.LoadBundle(o.Peers.CAFile); err != nil {
		return fmt.Errorf("--peer-ca-file: %w", err)
	}
	versions := p.lookup(apiserverinternalv1alpha1.SchemeGroupVersion.WithResource("storageversions"))
	leases, responder := p.lookup(coordinationv1.SchemeGroupVersion.WithResource("leases")), p.responder()
	p.peers = peers.New(peers.Config{
		Identity: p.presence.Identity, Store: versions.Store, Addresses: p.presence.Addresses, Authorities: p.peerCAs.Pool,
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
		Certificate: func() *tls.Certificate { return p.proxyClientCert.Certificate() },
		MaxRequests: p.maxRequestsPerServer(), Refuse: responder.Error,
		Metrics: peers.NewMetrics(p.metrics), Traces: p.traces, Logger: p.log,
	})
	return nil
}

// peer returns a handler that proxies a request to a replica that serves its resource; nil if there
// is none.
func (p *parts) peer(r *http.Request, op *requestinfo.Info) http.Handler {
	if p.peers == nil {
		return nil
	}
	return p.peers.Handler(r, op)
}

// peerTasks returns tasks that publish this replica's address and follow other replicas.
func (p *parts) peerTasks() (tasks []task.Task) {
	if p.presence == nil {
		return nil
	}
	tasks = append(tasks, task.Task{Name: "presence for peers", Run: p.presence.Run})
	if p.peers != nil {
		tasks = append(tasks, task.Task{Name: "peers", Run: p.peers.Run},
			task.Task{Name: "authorities of peers", Run: func(ctx context.Context) error { return tlsfiles.Watch(ctx, p.log, p.peerCAs) }})
	}
	return tasks
}
