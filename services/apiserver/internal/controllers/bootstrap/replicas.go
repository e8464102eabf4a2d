package bootstrap

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"net"
	"reflect"
	"slices"
	"sort"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/storage"
)

// Intervals of replicas, as in Kubernetes.
const (
	identityRenewal  = 10 * time.Second // between renewals of the identity lease
	identityDuration = time.Hour        // of the identity lease
	// endpointTTL is how long a replica stays an endpoint of the kubernetes service after it last
	// wrote its address.
	endpointTTL = 15 * time.Second
)

// IdentityPrefix is the prefix of the names of replicas. The lease of a replica in the system
// namespace has the same name.
const IdentityPrefix = "apiserver-"

// Identity returns the name of the replica on a host. It is the same as the name of a
// kube-apiserver on that host: the first 16 bytes of the SHA-256 of the host and the component,
// each preceded by its length in two bytes, in base32.
func Identity(host string) string {
	var data []byte
	for _, part := range []string{host, "kube-apiserver"} {
		data = append(binary.BigEndian.AppendUint16(data, uint16(len(part))), part...)
	}
	sum := sha256.Sum256(data)
	return IdentityPrefix + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
}

// renewIdentityLease creates or renews the lease of this replica.
func (b *Bootstrap) renewIdentityLease(ctx context.Context) error {
	holder := b.Identity + "_" + b.Instance
	newSpec := func() coordinationv1.LeaseSpec {
		return coordinationv1.LeaseSpec{
			HolderIdentity:       &holder,
			LeaseDurationSeconds: new(int32(identityDuration / time.Second)),
			RenewTime:            &metav1.MicroTime{Time: b.Now()},
		}
	}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: b.Identity, Namespace: api.SystemNamespace, Labels: map[string]string{
			"apiserver.kubernetes.io/identity": "kube-apiserver", "kubernetes.io/hostname": b.Hostname,
		}},
		Spec: newSpec(),
	}
	return internalclient.Put(
		ctx,
		b.API,
		internalclient.Collection("coordination.k8s.io", "v1", "leases", api.SystemNamespace),
		lease,
		func(live *coordinationv1.Lease) bool {
			live.Labels, live.Spec = lease.Labels, newSpec()
			return true
		},
	)
}

// deleteExpiredIdentities deletes the expired leases of replicas that have stopped.
func (b *Bootstrap) deleteExpiredIdentities(ctx context.Context) error {
	path := internalclient.Collection("coordination.k8s.io", "v1", "leases", api.SystemNamespace)
	var list coordinationv1.LeaseList
	if err := b.API.ListCached(ctx, path, map[string]string{"apiserver.kubernetes.io/identity": "kube-apiserver"}, &list); err != nil {
		return err
	}
	for _, lease := range list.Items {
		if lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil ||
			b.Now().Before(lease.Spec.RenewTime.Add(time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second)) {
			continue
		}
		opts := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &lease.ResourceVersion}}
		if err := b.API.Delete(ctx, path.Named(lease.Name), opts); err != nil && !apierrors.IsNotFound(err) &&
			!apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}

// addressPrefix returns the prefix of the keys that live replicas write: "<prefix><IP address>".
func (b *Bootstrap) addressPrefix() string { return b.Root + "/masterleases/" }

// renewAddress writes the key with the address of this replica. The key expires after endpointTTL.
func (b *Bootstrap) renewAddress(ctx context.Context) error {
	value, err := b.EncodeEndpoints(
		&corev1.Endpoints{Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: b.AdvertiseAddress.String()}}}}},
	)
	if err != nil {
		return err
	}
	key := b.addressPrefix() + b.AdvertiseAddress.String()
	ttl := storage.WriteOptions{TTL: endpointTTL}
	for range 3 {
		kv, _, err := b.Store.Get(ctx, key, 0)
		if errors.Is(err, storage.ErrNotFound) {
			_, err = b.Store.Create(ctx, key, value, ttl)
		} else if err == nil {
			_, err = b.Store.Update(ctx, key, value, kv.ModRevision, ttl)
		}
		var conflict *storage.ConflictError
		var exists *storage.ExistsError
		if !errors.As(err, &conflict) && !errors.As(err, &exists) && !errors.Is(err, storage.ErrNotFound) {
			return err
		}
	}
	return nil // another replica with the same address renews it
}

// withdrawAddress deletes the key with the address of this replica, and removes the address from
// the endpoints of the kubernetes service.
func (b *Bootstrap) withdrawAddress(ctx context.Context) error {
	if b.ForeignEndpoints {
		return nil
	}
	key := b.addressPrefix() + b.AdvertiseAddress.String()
	kv, _, err := b.Store.Get(ctx, key, 0)
	if err == nil {
		_, err = b.Store.Delete(ctx, key, kv.ModRevision)
	}
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	return b.reconcileEndpoints(ctx)
}

// reconcileEndpoints sets the endpoints of the kubernetes service to the addresses of the live
// replicas. It omits addresses that are not global unicast addresses, such as loopback addresses,
// because endpoints must not have them.
func (b *Bootstrap) reconcileEndpoints(ctx context.Context) error {
	res, err := b.Store.List(ctx, b.addressPrefix(), storage.ListOptions{})
	if err != nil {
		return err
	}
	var ips []string
	for _, kv := range res.Items {
		if ip := strings.TrimPrefix(kv.Key, b.addressPrefix()); net.ParseIP(ip).IsGlobalUnicast() {
			ips = append(ips, ip)
		}
	}
	sort.Strings(ips)
	if err := b.putEndpoints(ctx, ips); err != nil {
		return err
	}
	return b.putEndpointSlice(ctx, ips)
}

// putEndpoints writes the Endpoints of the kubernetes service if its addresses have changed.
func (b *Bootstrap) putEndpoints(ctx context.Context, ips []string) error {
	var subsets []corev1.EndpointSubset
	if len(ips) > 0 {
		s := corev1.EndpointSubset{
			Ports: []corev1.EndpointPort{{Name: "https", Port: int32(b.SecurePort), Protocol: corev1.ProtocolTCP}},
		}
		for _, ip := range ips {
			s.Addresses = append(s.Addresses, corev1.EndpointAddress{IP: ip})
		}
		subsets = append(subsets, s)
	}
	endpoints := &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{
			Name:      "kubernetes",
			Namespace: api.DefaultNamespace,
			Labels:    map[string]string{discoveryv1.LabelSkipMirror: "true"},
		},
		Subsets: subsets,
	}
	return internalclient.Put(
		ctx,
		b.API,
		internalclient.Collection("", "v1", "endpoints", api.DefaultNamespace),
		endpoints,
		func(live *corev1.Endpoints) bool {
			if reflect.DeepEqual(live.Subsets, subsets) {
				return false
			}
			live.Subsets = subsets
			return true
		},
	)
}

// putEndpointSlice writes the EndpointSlice of the kubernetes service if its addresses have
// changed. It deletes and recreates an object of the other IP family, because the address type is
// immutable.
func (b *Bootstrap) putEndpointSlice(ctx context.Context, ips []string) error {
	family := discoveryv1.AddressTypeIPv4
	if b.AdvertiseAddress.To4() == nil {
		family = discoveryv1.AddressTypeIPv6
	}
	ips = slices.DeleteFunc(
		slices.Clone(ips),
		func(ip string) bool { return (net.ParseIP(ip).To4() == nil) != (family == discoveryv1.AddressTypeIPv6) },
	)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name:      "kubernetes",
			Namespace: api.DefaultNamespace,
			Labels:    map[string]string{discoveryv1.LabelServiceName: "kubernetes"},
		},
		AddressType: family,
		Endpoints:   []discoveryv1.Endpoint{},
		Ports: []discoveryv1.EndpointPort{
			{Name: new("https"), Port: new(int32(b.SecurePort)), Protocol: new(corev1.ProtocolTCP)},
		},
	}
	for _, ip := range ips {
		slice.Endpoints = append(slice.Endpoints,
			discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
	}
	addresses := func(s *discoveryv1.EndpointSlice) (out []string) {
		for _, e := range s.Endpoints {
			out = append(out, e.Addresses...)
		}
		return out
	}
	path := internalclient.Collection("discovery.k8s.io", "v1", "endpointslices", api.DefaultNamespace)
	otherFamily := false
	change := func(live *discoveryv1.EndpointSlice) bool {
		otherFamily = live.AddressType != family
		if otherFamily || slices.Equal(addresses(live), ips) && reflect.DeepEqual(live.Ports, slice.Ports) {
			return false
		}
		live.Endpoints = slice.Endpoints
		live.Ports = slice.Ports
		return true
	}
	if err := internalclient.Put(ctx, b.API, path, slice, change); err != nil || !otherFamily {
		return err
	}
	if err := b.API.Delete(ctx, path.Named(slice.Name), nil); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return internalclient.Put(ctx, b.API, path, slice, change)
}
