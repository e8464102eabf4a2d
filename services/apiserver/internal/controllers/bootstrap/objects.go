package bootstrap

import (
	"context"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/controllers/autoregister"
	"binnacle/services/apiserver/internal/rest/internalclient"
)

// createNamespaces creates the four namespaces that every cluster has.
func (b *Bootstrap) createNamespaces(ctx context.Context) error {
	for _, name := range []string{api.SystemNamespace, api.PublicNamespace, api.NodeLeaseNamespace, api.DefaultNamespace} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := b.API.Ensure(ctx, internalclient.Collection("", "v1", "namespaces", ""), ns); err != nil {
			return err
		}
	}
	return nil
}

// createPriorityClasses creates the two priority classes for critical pods of the system.
func (b *Bootstrap) createPriorityClasses(ctx context.Context) error {
	preempt := corev1.PreemptLowerPriority
	for _, priorityClass := range []*schedulingv1.PriorityClass{
		{
			ObjectMeta:       metav1.ObjectMeta{Name: "system-node-critical"},
			Value:            2000001000,
			PreemptionPolicy: &preempt,
			Description:      "Used for system critical pods that must not be moved from their current node.",
		},
		{
			ObjectMeta:       metav1.ObjectMeta{Name: "system-cluster-critical"},
			Value:            2000000000,
			PreemptionPolicy: &preempt,
			Description:      "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
		},
	} {
		if err := b.API.Ensure(ctx, internalclient.Collection("scheduling.k8s.io", "v1", "priorityclasses", ""), priorityClass); err != nil {
			return err
		}
	}
	return nil
}

// maintainServiceCIDR maintains the default ServiceCIDR, which has the ranges of
// --service-cluster-ip-range. It creates the object if it is missing, adds the second IP family to
// a single-stack object, and sets the condition Ready.
//
// It changes neither an object with other ranges nor one that is being deleted. An administrator
// migrates to other ranges by deleting the object, and the next run creates it with the new ranges.
func (b *Bootstrap) maintainServiceCIDR(ctx context.Context) error {
	if b.NoServiceCIDR {
		return nil
	}
	path := internalclient.Collection("networking.k8s.io", "v1", "servicecidrs", "")
	object := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}}
	for _, r := range b.ServiceRanges {
		object.Spec.CIDRs = append(object.Spec.CIDRs, r.String())
	}
	if err := b.API.Ensure(ctx, path, object); err != nil {
		return err
	}
	var live networkingv1.ServiceCIDR
	if err := b.API.Get(ctx, path.Named("kubernetes"), &live); err != nil {
		return err
	}
	stored, configured := live.Spec.CIDRs, object.Spec.CIDRs
	if len(stored) == 1 && len(configured) == 2 && stored[0] == configured[0] {
		live.Spec.CIDRs = configured
		if err := b.API.Update(ctx, path.Named("kubernetes"), &live, &live); err != nil && !apierrors.IsConflict(err) {
			return err
		}
		return nil
	}
	if live.DeletionTimestamp != nil {
		return nil
	}
	if !slices.Equal(stored, configured) {
		b.reportRange.Do(func() {
			b.Logger.Warn(
				"ServiceCIDR kubernetes does not match --service-cluster-ip-range; change the flag or delete the ServiceCIDR",
				"servicecidr", stored, "flag", configured)
		})
		return nil
	}
	if slices.ContainsFunc(
		live.Status.Conditions,
		func(c metav1.Condition) bool { return c.Type == networkingv1.ServiceCIDRConditionReady },
	) {
		return nil
	}
	// Only these fields, so that others have no owner.
	ready := map[string]any{
		"type":               networkingv1.ServiceCIDRConditionReady,
		"status":             metav1.ConditionTrue,
		"lastTransitionTime": metav1.NewTime(b.Now().UTC().Truncate(time.Second)),
		"message":            "Kubernetes default Service CIDR is ready",
	}
	desired := internalclient.NewStatus(networkingv1.SchemeGroupVersion.WithKind("ServiceCIDR"),
		internalclient.StatusMetadata{Name: "kubernetes"}, map[string]any{"conditions": []any{ready}})
	return b.API.WithManager("kubernetes-service-cidr-controller").
		Apply(ctx, path.Named("kubernetes").Subresource("status"), desired)
}

// firstAddress returns the address after the network address of a range, which is the cluster IP of
// the kubernetes service: 10.0.0.1 for 10.0.0.0/24.
func firstAddress(n *net.IPNet) net.IP {
	ip := append(net.IP(nil), n.IP...)
	for i := len(ip) - 1; i >= 0; i-- {
		ip[i]++
		if ip[i] != 0 {
			break
		}
	}
	return ip
}

// createKubernetesService creates the kubernetes service, through which pods reach the API server.
func (b *Bootstrap) createKubernetesService(ctx context.Context) error {
	if len(b.ServiceRanges) == 0 {
		return nil
	}
	ip := firstAddress(b.ServiceRanges[0])
	family := corev1.IPv4Protocol
	if ip.To4() == nil {
		family = corev1.IPv6Protocol
	}
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name:      "kubernetes",
			Namespace: api.DefaultNamespace,
			Labels:    map[string]string{"provider": "kubernetes", "component": "apiserver"},
		},
		Spec: corev1.ServiceSpec{
			Ports: []corev1.ServicePort{{
				Name: "https", Protocol: corev1.ProtocolTCP, Port: 443, TargetPort: intstr.FromInt32(int32(b.SecurePort)),
			}},
			ClusterIP:             ip.String(),
			ClusterIPs:            []string{ip.String()},
			Type:                  corev1.ServiceTypeClusterIP,
			SessionAffinity:       corev1.ServiceAffinityNone,
			IPFamilies:            []corev1.IPFamily{family},
			IPFamilyPolicy:        new(corev1.IPFamilyPolicySingleStack),
			InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
		},
	}
	if b.NodePort != 0 {
		svc.Spec.Type = corev1.ServiceTypeNodePort
		svc.Spec.Ports[0].NodePort = int32(b.NodePort)
	}
	return b.API.Ensure(ctx, internalclient.Collection("", "v1", "services", api.DefaultNamespace), svc)
}

// repairAllocations calls Config.RepairAllocations. It first creates the default ServiceCIDR, which
// the repair needs.
func (b *Bootstrap) repairAllocations(ctx context.Context) error {
	if err := b.maintainServiceCIDR(ctx); err != nil {
		return err
	}
	return b.RepairAllocations(ctx)
}

// recordTokenTracking creates the config map with the date since which the use of legacy service
// account tokens is tracked.
func (b *Bootstrap) recordTokenTracking(ctx context.Context) error {
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-apiserver-legacy-service-account-token-tracking", Namespace: api.SystemNamespace},
		Data:       map[string]string{"since": b.Now().UTC().Format(time.DateOnly)},
	}
	return b.API.Ensure(ctx, internalclient.Collection("", "v1", "configmaps", api.SystemNamespace), cm)
}

// registerAPIServices creates the APIService objects of built-in group versions, and deletes those
// of group versions that are no longer served.
func (b *Bootstrap) registerAPIServices(ctx context.Context) error {
	desired := map[string]bool{}
	for _, s := range b.APIServices {
		desired[s.Name()] = true
		err := b.API.GetCached(ctx, autoregister.APIServicesPath.Named(s.Name()), nil)
		if err == nil {
			continue
		}
		if err = b.API.Create(ctx, autoregister.APIServicesPath, s.Object(autoregister.ManagedOnStart)); err != nil &&
			!apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	var live metav1.PartialObjectMetadataList
	if err := b.API.List(ctx, autoregister.APIServicesPath, map[string]string{autoregister.ManagedLabel: autoregister.ManagedOnStart}, &live); err != nil {
		return err
	}
	for i := range live.Items {
		name := live.Items[i].Name
		if desired[name] {
			continue
		}
		if err := b.API.Delete(ctx, autoregister.APIServicesPath.Named(name), nil); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
