package app

import (
	"errors"

	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"binnacle/libs/kubeclient"
	"binnacle/services/controllers/internal/namespaces"
	"binnacle/services/controllers/internal/quotas"
	"binnacle/services/controllers/internal/resources"
)

// Multiples of --kube-api-qps and --kube-api-burst, as in kube-controller-manager. The deletion of an
// object takes several requests. The deletion of a namespace takes several for each resource.
const (
	gcRate         = 2
	namespaceRate  = 20
	namespaceBurst = 100
)

// clients holds the clients of the controllers. Each comment begins a group of clients that share one
// rate limit.
type clients struct {
	// Discovery: the default rate.
	discovery resources.Discovery

	// Object graph: no limit, because it lists and watches each resource once.
	graphMetadata metadata.Interface

	// Garbage collector: gcRate.
	collector metadata.Interface

	// Content of namespaces: namespaceRate and namespaceBurst.
	namespacesMetadata metadata.Interface

	// Namespaces that are being deleted, and their pods: namespaceRate and namespaceBurst.
	namespaces    namespaces.Client
	namespacePods kubeclient.Namespaced[*corev1.Pod, *corev1.PodList]

	// Controllers with few requests: the default rate.
	allNamespaces kubeclient.Interface[*corev1.Namespace, *corev1.NamespaceList]
	leases        kubeclient.Namespaced[*coordinationv1.Lease, *coordinationv1.LeaseList]
	jobs          kubeclient.Namespaced[*batchv1.Job, *batchv1.JobList]
	requests      kubeclient.Interface[*certificatesv1.CertificateSigningRequest, *certificatesv1.CertificateSigningRequestList]

	// Quotas: the default rate.
	quotas quotas.Clients

	// Aggregated cluster roles: the default rate.
	roles kubeclient.Interface[*rbacv1.ClusterRole, *rbacv1.ClusterRoleList]

	// Default service accounts, CA certificates and Events: the default rate.
	accounts   kubeclient.Namespaced[*corev1.ServiceAccount, *corev1.ServiceAccountList]
	configMaps kubeclient.Namespaced[*corev1.ConfigMap, *corev1.ConfigMapList]
	events     kubeclient.Namespaced[*corev1.Event, *corev1.EventList]
}

// newClients returns the clients of all controllers. Their rates are multiples of the rate in
// config.
func newClients(config *rest.Config) (*clients, error) {
	unlimited := rest.CopyConfig(config)
	unlimited.QPS = -1
	// All resources are followed and deleted, also deprecated ones, so warnings are useless.
	config = rest.CopyConfig(config)
	config.WarningHandler, unlimited.WarningHandler = rest.NoWarnings{}, rest.NoWarnings{}
	scaled := func(rate float32, burst int) *rest.Config {
		c := rest.CopyConfig(config)
		c.QPS, c.Burst = c.QPS*rate, c.Burst*burst
		return c
	}
	b := &clientBuilder{}
	out := &clients{
		graphMetadata: b.newMetadataClient(unlimited), collector: b.newMetadataClient(scaled(gcRate, gcRate)),
		namespacesMetadata: b.newMetadataClient(scaled(namespaceRate, namespaceBurst)),
	}
	var err error
	out.discovery, err = resources.NewClient(config)
	b.errs = append(b.errs, err)

	client := b.newClient(scaled(namespaceRate, namespaceBurst), corev1.AddToScheme)
	out.namespaces = newResourceClient[corev1.Namespace, corev1.NamespaceList](b, client, coreResource("namespaces"))
	out.namespacePods = newResourceClient[corev1.Pod, corev1.PodList](b, client, coreResource("pods")).Namespaced()

	client = b.newClient(config, corev1.AddToScheme, coordinationv1.AddToScheme, batchv1.AddToScheme,
		certificatesv1.AddToScheme)
	out.allNamespaces = newResourceClient[corev1.Namespace, corev1.NamespaceList](b, client, coreResource("namespaces"))
	out.leases = newResourceClient[coordinationv1.Lease, coordinationv1.LeaseList](b, client,
		coordinationv1.SchemeGroupVersion.WithResource("leases")).Namespaced()
	out.jobs = newResourceClient[batchv1.Job, batchv1.JobList](b, client,
		batchv1.SchemeGroupVersion.WithResource("jobs")).Namespaced()
	out.requests = newResourceClient[certificatesv1.CertificateSigningRequest, certificatesv1.CertificateSigningRequestList](b, client,
		certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests"))

	client = b.newClient(config, corev1.AddToScheme, resourcev1beta1.AddToScheme, resourcev1beta2.AddToScheme)
	out.quotas = quotaClients(b, client)

	client = b.newClient(config, rbacv1.AddToScheme)
	out.roles = newResourceClient[rbacv1.ClusterRole, rbacv1.ClusterRoleList](b, client,
		rbacv1.SchemeGroupVersion.WithResource("clusterroles"))

	client = b.newClient(config, corev1.AddToScheme)
	out.accounts = newResourceClient[corev1.ServiceAccount, corev1.ServiceAccountList](b, client,
		coreResource("serviceaccounts")).Namespaced()
	out.configMaps = newResourceClient[corev1.ConfigMap, corev1.ConfigMapList](b, client, coreResource("configmaps")).Namespaced()
	out.events = newResourceClient[corev1.Event, corev1.EventList](b, client, coreResource("events")).Namespaced()
	return out, errors.Join(b.errs...)
}

// quotaClients returns the clients of the quota controller.
func quotaClients(builder *clientBuilder, client *kubeclient.Client) quotas.Clients {
	const claims = "resourceclaims"
	all := newResourceClient[corev1.ResourceQuota, corev1.ResourceQuotaList](builder, client, coreResource("resourcequotas"))
	return quotas.Clients{
		Quotas:   all.Namespaced(),
		Status:   func(namespace string) quotas.StatusClient { return all.Namespace(namespace) },
		Pods:     newResourceClient[corev1.Pod, corev1.PodList](builder, client, coreResource("pods")).Namespaced(),
		Services: newResourceClient[corev1.Service, corev1.ServiceList](builder, client, coreResource("services")).Namespaced(),
		VolumeClaims: newResourceClient[corev1.PersistentVolumeClaim, corev1.PersistentVolumeClaimList](builder, client,
			coreResource("persistentvolumeclaims")).Namespaced(),
		DeviceClaimsV1beta1: newResourceClient[resourcev1beta1.ResourceClaim, resourcev1beta1.ResourceClaimList](builder, client,
			resourcev1beta1.SchemeGroupVersion.WithResource(claims)).Namespaced(),
		DeviceClaimsV1beta2: newResourceClient[resourcev1beta2.ResourceClaim, resourcev1beta2.ResourceClaimList](builder, client,
			resourcev1beta2.SchemeGroupVersion.WithResource(claims)).Namespaced(),
	}
}

func coreResource(resource string) schema.GroupVersionResource {
	return corev1.SchemeGroupVersion.WithResource(resource)
}

// clientBuilder collects the errors of constructors.
type clientBuilder struct{ errs []error }

// newClient returns a client with its own rate, or nil after an error.
func (b *clientBuilder) newClient(config *rest.Config, add ...func(*runtime.Scheme) error) *kubeclient.Client {
	c, err := kubeclient.NewClient(config, add...)
	b.errs = append(b.errs, err)
	return c
}

func (b *clientBuilder) newMetadataClient(config *rest.Config) metadata.Interface {
	c, err := metadata.NewForConfig(config)
	b.errs = append(b.errs, err)
	return c
}

// newResourceClient returns the client of a resource in all namespaces, or nil after an error.
func newResourceClient[T, L any, P kubeclient.Object[T], PL kubeclient.Object[L]](
	builder *clientBuilder, c *kubeclient.Client, r schema.GroupVersionResource,
) *kubeclient.Resource[T, L, P, PL] {
	if c == nil {
		return nil
	}
	out, err := kubeclient.NewResource[T, L, P, PL](c, r, "")
	builder.errs = append(builder.errs, err)
	return out
}
