package olderversions

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	appsv1beta2 "k8s.io/api/apps/v1beta2"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	autoscalingv2beta1 "k8s.io/api/autoscaling/v2beta1"
	autoscalingv2beta2 "k8s.io/api/autoscaling/v2beta2"
	batchv1 "k8s.io/api/batch/v1"
	batchv1beta1 "k8s.io/api/batch/v1beta1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	discoveryv1beta1 "k8s.io/api/discovery/v1beta1"
	eventsv1 "k8s.io/api/events/v1"
	eventsv1beta1 "k8s.io/api/events/v1beta1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta1 "k8s.io/api/flowcontrol/v1beta1"
	flowcontrolv1beta2 "k8s.io/api/flowcontrol/v1beta2"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1alpha1 "k8s.io/api/networking/v1alpha1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	nodev1 "k8s.io/api/node/v1"
	nodev1alpha1 "k8s.io/api/node/v1alpha1"
	nodev1beta1 "k8s.io/api/node/v1beta1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1alpha1 "k8s.io/api/rbac/v1alpha1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha1 "k8s.io/api/scheduling/v1alpha1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	storagev1alpha1 "k8s.io/api/storage/v1alpha1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/kinds/autoscaling"
	"binnacle/services/apiserver/internal/api/kinds/policygroup"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
)

// version is a version in which objects of a kind may be stored but which is not served.
type version struct {
	apiVersion schema.GroupVersion
	decode     decoder
	// like is a served version with the same fields. If it is set, it decodes in place of decode.
	like schema.GroupVersion
	// decoded is a value of the Go type that has the fields of apiVersion; nil if no such type
	// exists.
	decoded runtime.Object
}

// versions holds the versions that Kubernetes 1.33 decodes in addition to those that it serves, by
// the currently stored kind.
var versions = map[schema.GroupKind][]version{
	{Group: admissionregistrationv1.GroupName, Kind: "MutatingWebhookConfiguration"}:     {sameFields(admissionregistrationv1beta1.SchemeGroupVersion, fillMutatingWebhooks)},
	{Group: admissionregistrationv1.GroupName, Kind: "ValidatingWebhookConfiguration"}:   {sameFields(admissionregistrationv1beta1.SchemeGroupVersion, fillValidatingWebhooks)},
	{Group: admissionregistrationv1.GroupName, Kind: "ValidatingAdmissionPolicy"}:        {sameFields[admissionregistrationv1.ValidatingAdmissionPolicy](admissionregistrationv1alpha1.SchemeGroupVersion, nil)},
	{Group: admissionregistrationv1.GroupName, Kind: "ValidatingAdmissionPolicyBinding"}: {sameFields(admissionregistrationv1alpha1.SchemeGroupVersion, fillPolicyBinding)},
	{Group: apiregistrationv1.GroupName, Kind: "APIService"}:                             {sameFields[apiregistrationv1.APIService](schema.GroupVersion{Group: apiregistrationv1.GroupName, Version: "v1beta1"}, nil)},
	{Group: appsv1.GroupName, Kind: "ControllerRevision"}: {
		sameFields[appsv1.ControllerRevision](appsv1beta1.SchemeGroupVersion, nil),
		sameFields[appsv1.ControllerRevision](appsv1beta2.SchemeGroupVersion, nil),
	},
	{Group: appsv1.GroupName, Kind: "DaemonSet"}: {
		changed(extensionsv1beta1.SchemeGroupVersion, daemonSet),
		sameFields[appsv1.DaemonSet](appsv1beta2.SchemeGroupVersion, nil),
	},
	{Group: appsv1.GroupName, Kind: "Deployment"}: {
		changed(extensionsv1beta1.SchemeGroupVersion, deploymentOfExtensions),
		changed(appsv1beta1.SchemeGroupVersion, deploymentOfBeta1),
		sameFields[appsv1.Deployment](appsv1beta2.SchemeGroupVersion, nil),
	},
	{Group: appsv1.GroupName, Kind: "ReplicaSet"}: {
		sameFields(extensionsv1beta1.SchemeGroupVersion, fillReplicaSet),
		sameFields[appsv1.ReplicaSet](appsv1beta2.SchemeGroupVersion, nil),
	},
	{Group: appsv1.GroupName, Kind: "StatefulSet"}: {
		sameFields(appsv1beta1.SchemeGroupVersion, fillStatefulSet),
		sameFields[appsv1.StatefulSet](appsv1beta2.SchemeGroupVersion, nil),
	},
	{Group: autoscalingv2.GroupName, Kind: "HorizontalPodAutoscaler"}: {
		changed(autoscalingv2beta1.SchemeGroupVersion, autoscaling.FromV2beta1),
		changed(autoscalingv2beta2.SchemeGroupVersion, autoscaling.FromV2beta2),
	},
	{Group: batchv1.GroupName, Kind: "CronJob"}:                          {sameFields[batchv1.CronJob](batchv1beta1.SchemeGroupVersion, nil)},
	{Group: certificatesv1.GroupName, Kind: "CertificateSigningRequest"}: {sameFields(certificatesv1beta1.SchemeGroupVersion, fillSigningRequest)},
	{Group: coordinationv1.GroupName, Kind: "Lease"}:                     {sameFields[coordinationv1.Lease](coordinationv1beta1.SchemeGroupVersion, nil)},
	{Group: discoveryv1beta1.GroupName, Kind: "EndpointSlice"}:           {changed(discoveryv1beta1.SchemeGroupVersion, endpointSlice)},
	{Kind: "Event"}: {{apiVersion: eventsv1beta1.SchemeGroupVersion, like: eventsv1.SchemeGroupVersion, decoded: &eventsv1.Event{}}},
	{Group: flowcontrolv1.GroupName, Kind: "FlowSchema"}: {
		sameFields[flowcontrolv1.FlowSchema](flowcontrolv1beta1.SchemeGroupVersion, nil),
		sameFields[flowcontrolv1.FlowSchema](flowcontrolv1beta2.SchemeGroupVersion, nil),
		sameFields[flowcontrolv1.FlowSchema](flowcontrolv1beta3.SchemeGroupVersion, nil),
	},
	{Group: flowcontrolv1.GroupName, Kind: "PriorityLevelConfiguration"}: {
		changed(flowcontrolv1beta1.SchemeGroupVersion, priorityLevelOfBeta2),
		changed(flowcontrolv1beta2.SchemeGroupVersion, priorityLevelOfBeta2),
		changed(flowcontrolv1beta3.SchemeGroupVersion, priorityLevelOfBeta3),
	},
	{Group: networkingv1.GroupName, Kind: "Ingress"}: {
		changed(extensionsv1beta1.SchemeGroupVersion, ingress),
		changed(networkingv1beta1.SchemeGroupVersion, ingress),
	},
	{Group: networkingv1.GroupName, Kind: "IngressClass"}:  {sameFields[networkingv1.IngressClass](networkingv1beta1.SchemeGroupVersion, nil)},
	{Group: networkingv1.GroupName, Kind: "IPAddress"}:     {sameFields[networkingv1.IPAddress](networkingv1alpha1.SchemeGroupVersion, nil)},
	{Group: networkingv1.GroupName, Kind: "NetworkPolicy"}: {sameFields[networkingv1.NetworkPolicy](extensionsv1beta1.SchemeGroupVersion, nil)},
	{Group: networkingv1.GroupName, Kind: "ServiceCIDR"}:   {sameFields[networkingv1.ServiceCIDR](networkingv1alpha1.SchemeGroupVersion, nil)},
	{Group: nodev1.GroupName, Kind: "RuntimeClass"}: {
		changed(nodev1alpha1.SchemeGroupVersion, runtimeClass),
		sameFields[nodev1.RuntimeClass](nodev1beta1.SchemeGroupVersion, nil),
	},
	{Group: policyv1.GroupName, Kind: "PodDisruptionBudget"}: {sameFields(policyv1beta1.SchemeGroupVersion, policygroup.FromV1beta1)},
	{Group: rbacv1.GroupName, Kind: "ClusterRole"}: {
		changed(rbacv1alpha1.SchemeGroupVersion, clusterRole),
		sameFields[rbacv1.ClusterRole](rbacv1beta1.SchemeGroupVersion, nil),
	},
	{Group: rbacv1.GroupName, Kind: "ClusterRoleBinding"}: {
		changed(rbacv1alpha1.SchemeGroupVersion, clusterRoleBinding),
		sameFields[rbacv1.ClusterRoleBinding](rbacv1beta1.SchemeGroupVersion, nil),
	},
	{Group: rbacv1.GroupName, Kind: "Role"}: {
		changed(rbacv1alpha1.SchemeGroupVersion, role),
		sameFields[rbacv1.Role](rbacv1beta1.SchemeGroupVersion, nil),
	},
	{Group: rbacv1.GroupName, Kind: "RoleBinding"}: {
		changed(rbacv1alpha1.SchemeGroupVersion, roleBinding),
		sameFields[rbacv1.RoleBinding](rbacv1beta1.SchemeGroupVersion, nil),
	},
	{Group: schedulingv1.GroupName, Kind: "PriorityClass"}: {
		sameFields[schedulingv1.PriorityClass](schedulingv1alpha1.SchemeGroupVersion, nil),
		sameFields[schedulingv1.PriorityClass](schedulingv1beta1.SchemeGroupVersion, nil),
	},
	{Group: storagev1.GroupName, Kind: "CSIDriver"}: {sameFields[storagev1.CSIDriver](storagev1beta1.SchemeGroupVersion, nil)},
	{Group: storagev1.GroupName, Kind: "CSINode"}:   {sameFields[storagev1.CSINode](storagev1beta1.SchemeGroupVersion, nil)},
	{Group: storagev1.GroupName, Kind: "CSIStorageCapacity"}: {
		sameFields[storagev1.CSIStorageCapacity](storagev1alpha1.SchemeGroupVersion, nil),
		sameFields[storagev1.CSIStorageCapacity](storagev1beta1.SchemeGroupVersion, nil),
	},
	{Group: storagev1.GroupName, Kind: "StorageClass"}: {sameFields[storagev1.StorageClass](storagev1beta1.SchemeGroupVersion, nil)},
	{Group: storagev1.GroupName, Kind: "VolumeAttachment"}: {
		sameFields[storagev1.VolumeAttachment](storagev1alpha1.SchemeGroupVersion, nil),
		sameFields[storagev1.VolumeAttachment](storagev1beta1.SchemeGroupVersion, nil),
	},
}

// pointer is *T, an API object.
type pointer[T any] interface {
	*T
	registry.Object
}

// sameFields returns a version whose fields are those of the storage version T. fill, if not nil,
// sets the defaults that differ from those of the storage version.
func sameFields[T any, P pointer[T]](apiVersion schema.GroupVersion, fill func(P)) version {
	return version{apiVersion: apiVersion, decoded: P(new(T)), decode: func(stored []byte) (registry.Object, error) {
		obj := P(new(T))
		if err := codec.DecodeStoredInto(stored, obj); err != nil {
			return nil, err
		}
		if fill != nil {
			fill(obj)
		}
		return obj, nil
	}}
}

// changed returns a version whose fields are those of Old. convert converts it to the storage
// version. The result may share memory with its argument.
func changed[Old any, OldP pointer[Old], New registry.Object](apiVersion schema.GroupVersion, convert func(OldP) (New, error)) version {
	return version{apiVersion: apiVersion, decoded: OldP(new(Old)), decode: func(stored []byte) (registry.Object, error) {
		old := OldP(new(Old))
		if err := codec.DecodeStoredInto(stored, old); err != nil {
			return nil, err
		}
		return convert(old)
	}}
}

// message is an object with a protobuf form.
type message interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// sameNumbers copies an object to a version in which protobuf fields of the same meaning have the
// same numbers, whatever their names. It omits fields that the other version lacks.
func sameNumbers(from, to message) error {
	b, err := from.Marshal()
	if err != nil {
		return err
	}
	return to.Unmarshal(b)
}
