package quotas

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/kubeclient"
)

// Clients holds the clients of a Controller.
type Clients struct {
	Quotas       kubeclient.Namespaced[*corev1.ResourceQuota, *corev1.ResourceQuotaList]
	Status       func(namespace string) StatusClient
	Pods         kubeclient.Namespaced[*corev1.Pod, *corev1.PodList]
	Services     kubeclient.Namespaced[*corev1.Service, *corev1.ServiceList]
	VolumeClaims kubeclient.Namespaced[*corev1.PersistentVolumeClaim, *corev1.PersistentVolumeClaimList]
	// Device claims in the versions that a server may prefer.
	DeviceClaimsV1beta1 kubeclient.Namespaced[*resourcev1beta1.ResourceClaim, *resourcev1beta1.ResourceClaimList]
	DeviceClaimsV1beta2 kubeclient.Namespaced[*resourcev1beta2.ResourceClaim, *resourcev1beta2.ResourceClaimList]
}

// StatusClient writes the status of quotas.
type StatusClient interface {
	UpdateStatus(ctx context.Context, q *corev1.ResourceQuota, o metav1.UpdateOptions) (*corev1.ResourceQuota, error)
}
