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

// olderVersion is a version in which objects of a kind may be stored, but which is not served any more.
// The functions identicalVersion, versionWithDefaults and versionWithConversion create one.
type olderVersion struct {
	apiVersion schema.GroupVersion
	// decode decodes a stored value. It is nil if sameAsServed is set.
	decode decoder
	// sameAsServed, if set, is a served version with the same fields and defaults. Values are decoded
	// like values of that version.
	sameAsServed schema.GroupVersion
	// decoded is an empty object of the Go type that decode decodes into. Tests use it to check
	// that the type has the fields of the version.
	decoded runtime.Object
}

// olderVersions lists the versions that Kubernetes 1.33 can decode in addition to those that it
// serves. The keys are the groups and kinds in which objects are stored now.
var olderVersions = map[schema.GroupKind][]olderVersion{
	{Group: admissionregistrationv1.GroupName, Kind: "MutatingWebhookConfiguration"}: {
		versionWithDefaults(admissionregistrationv1beta1.SchemeGroupVersion, defaultMutatingWebhooks),
	},
	{Group: admissionregistrationv1.GroupName, Kind: "ValidatingWebhookConfiguration"}: {
		versionWithDefaults(admissionregistrationv1beta1.SchemeGroupVersion, defaultValidatingWebhooks),
	},
	{Group: admissionregistrationv1.GroupName, Kind: "ValidatingAdmissionPolicy"}: {
		identicalVersion[admissionregistrationv1.ValidatingAdmissionPolicy](admissionregistrationv1alpha1.SchemeGroupVersion),
	},
	{Group: admissionregistrationv1.GroupName, Kind: "ValidatingAdmissionPolicyBinding"}: {
		versionWithDefaults(admissionregistrationv1alpha1.SchemeGroupVersion, defaultPolicyBinding),
	},
	{Group: apiregistrationv1.GroupName, Kind: "APIService"}: {
		identicalVersion[apiregistrationv1.APIService](schema.GroupVersion{Group: apiregistrationv1.GroupName, Version: "v1beta1"}),
	},
	{Group: appsv1.GroupName, Kind: "ControllerRevision"}: {
		identicalVersion[appsv1.ControllerRevision](appsv1beta1.SchemeGroupVersion),
		identicalVersion[appsv1.ControllerRevision](appsv1beta2.SchemeGroupVersion),
	},
	{Group: appsv1.GroupName, Kind: "DaemonSet"}: {
		versionWithConversion(extensionsv1beta1.SchemeGroupVersion, convertDaemonSet),
		identicalVersion[appsv1.DaemonSet](appsv1beta2.SchemeGroupVersion),
	},
	{Group: appsv1.GroupName, Kind: "Deployment"}: {
		versionWithConversion(extensionsv1beta1.SchemeGroupVersion, convertExtensionsDeployment),
		versionWithConversion(appsv1beta1.SchemeGroupVersion, convertBeta1Deployment),
		identicalVersion[appsv1.Deployment](appsv1beta2.SchemeGroupVersion),
	},
	{Group: appsv1.GroupName, Kind: "ReplicaSet"}: {
		versionWithDefaults(extensionsv1beta1.SchemeGroupVersion, defaultReplicaSet),
		identicalVersion[appsv1.ReplicaSet](appsv1beta2.SchemeGroupVersion),
	},
	{Group: appsv1.GroupName, Kind: "StatefulSet"}: {
		versionWithDefaults(appsv1beta1.SchemeGroupVersion, defaultStatefulSet),
		identicalVersion[appsv1.StatefulSet](appsv1beta2.SchemeGroupVersion),
	},
	{Group: autoscalingv2.GroupName, Kind: "HorizontalPodAutoscaler"}: {
		versionWithConversion(autoscalingv2beta1.SchemeGroupVersion, autoscaling.FromV2beta1),
		versionWithConversion(autoscalingv2beta2.SchemeGroupVersion, autoscaling.FromV2beta2),
	},
	{Group: batchv1.GroupName, Kind: "CronJob"}: {
		identicalVersion[batchv1.CronJob](batchv1beta1.SchemeGroupVersion),
	},
	{Group: certificatesv1.GroupName, Kind: "CertificateSigningRequest"}: {
		versionWithDefaults(certificatesv1beta1.SchemeGroupVersion, defaultSigningRequest),
	},
	{Group: coordinationv1.GroupName, Kind: "Lease"}: {
		identicalVersion[coordinationv1.Lease](coordinationv1beta1.SchemeGroupVersion),
	},
	{Group: discoveryv1beta1.GroupName, Kind: "EndpointSlice"}: {
		versionWithConversion(discoveryv1beta1.SchemeGroupVersion, convertEndpointSlice),
	},
	{Kind: "Event"}: {
		{apiVersion: eventsv1beta1.SchemeGroupVersion, sameAsServed: eventsv1.SchemeGroupVersion, decoded: &eventsv1.Event{}},
	},
	{Group: flowcontrolv1.GroupName, Kind: "FlowSchema"}: {
		identicalVersion[flowcontrolv1.FlowSchema](flowcontrolv1beta1.SchemeGroupVersion),
		identicalVersion[flowcontrolv1.FlowSchema](flowcontrolv1beta2.SchemeGroupVersion),
		identicalVersion[flowcontrolv1.FlowSchema](flowcontrolv1beta3.SchemeGroupVersion),
	},
	{Group: flowcontrolv1.GroupName, Kind: "PriorityLevelConfiguration"}: {
		versionWithConversion(flowcontrolv1beta1.SchemeGroupVersion, convertPriorityLevelBeta2),
		versionWithConversion(flowcontrolv1beta2.SchemeGroupVersion, convertPriorityLevelBeta2),
		versionWithConversion(flowcontrolv1beta3.SchemeGroupVersion, convertPriorityLevelBeta3),
	},
	{Group: networkingv1.GroupName, Kind: "Ingress"}: {
		versionWithConversion(extensionsv1beta1.SchemeGroupVersion, convertIngress),
		versionWithConversion(networkingv1beta1.SchemeGroupVersion, convertIngress),
	},
	{Group: networkingv1.GroupName, Kind: "IngressClass"}: {
		identicalVersion[networkingv1.IngressClass](networkingv1beta1.SchemeGroupVersion),
	},
	{Group: networkingv1.GroupName, Kind: "IPAddress"}: {
		identicalVersion[networkingv1.IPAddress](networkingv1alpha1.SchemeGroupVersion),
	},
	{Group: networkingv1.GroupName, Kind: "NetworkPolicy"}: {
		identicalVersion[networkingv1.NetworkPolicy](extensionsv1beta1.SchemeGroupVersion),
	},
	{Group: networkingv1.GroupName, Kind: "ServiceCIDR"}: {
		identicalVersion[networkingv1.ServiceCIDR](networkingv1alpha1.SchemeGroupVersion),
	},
	{Group: nodev1.GroupName, Kind: "RuntimeClass"}: {
		versionWithConversion(nodev1alpha1.SchemeGroupVersion, convertRuntimeClass),
		identicalVersion[nodev1.RuntimeClass](nodev1beta1.SchemeGroupVersion),
	},
	{Group: policyv1.GroupName, Kind: "PodDisruptionBudget"}: {
		versionWithDefaults(policyv1beta1.SchemeGroupVersion, policygroup.FromV1beta1),
	},
	{Group: rbacv1.GroupName, Kind: "ClusterRole"}: {
		versionWithConversion(rbacv1alpha1.SchemeGroupVersion, convertClusterRole),
		identicalVersion[rbacv1.ClusterRole](rbacv1beta1.SchemeGroupVersion),
	},
	{Group: rbacv1.GroupName, Kind: "ClusterRoleBinding"}: {
		versionWithConversion(rbacv1alpha1.SchemeGroupVersion, convertClusterRoleBinding),
		identicalVersion[rbacv1.ClusterRoleBinding](rbacv1beta1.SchemeGroupVersion),
	},
	{Group: rbacv1.GroupName, Kind: "Role"}: {
		versionWithConversion(rbacv1alpha1.SchemeGroupVersion, convertRole),
		identicalVersion[rbacv1.Role](rbacv1beta1.SchemeGroupVersion),
	},
	{Group: rbacv1.GroupName, Kind: "RoleBinding"}: {
		versionWithConversion(rbacv1alpha1.SchemeGroupVersion, convertRoleBinding),
		identicalVersion[rbacv1.RoleBinding](rbacv1beta1.SchemeGroupVersion),
	},
	{Group: schedulingv1.GroupName, Kind: "PriorityClass"}: {
		identicalVersion[schedulingv1.PriorityClass](schedulingv1alpha1.SchemeGroupVersion),
		identicalVersion[schedulingv1.PriorityClass](schedulingv1beta1.SchemeGroupVersion),
	},
	{Group: storagev1.GroupName, Kind: "CSIDriver"}: {identicalVersion[storagev1.CSIDriver](storagev1beta1.SchemeGroupVersion)},
	{Group: storagev1.GroupName, Kind: "CSINode"}:   {identicalVersion[storagev1.CSINode](storagev1beta1.SchemeGroupVersion)},
	{Group: storagev1.GroupName, Kind: "CSIStorageCapacity"}: {
		identicalVersion[storagev1.CSIStorageCapacity](storagev1alpha1.SchemeGroupVersion),
		identicalVersion[storagev1.CSIStorageCapacity](storagev1beta1.SchemeGroupVersion),
	},
	{Group: storagev1.GroupName, Kind: "StorageClass"}: {identicalVersion[storagev1.StorageClass](storagev1beta1.SchemeGroupVersion)},
	{Group: storagev1.GroupName, Kind: "VolumeAttachment"}: {
		identicalVersion[storagev1.VolumeAttachment](storagev1alpha1.SchemeGroupVersion),
		identicalVersion[storagev1.VolumeAttachment](storagev1beta1.SchemeGroupVersion),
	},
}

// objectPointer is the type *T if it is an API object.
type objectPointer[T any] interface {
	*T
	registry.Object
}

// identicalVersion returns a version with the same fields and the same defaults as the storage version,
// whose Go type is T.
func identicalVersion[T any, P objectPointer[T]](apiVersion schema.GroupVersion) olderVersion {
	return versionWithDefaults(apiVersion, func(P) {})
}

// versionWithDefaults returns a version with the same fields as the storage version, whose Go type is T,
// but with other defaults. setDefaults sets only the defaults that differ, in fields that are not set.
func versionWithDefaults[T any, P objectPointer[T]](apiVersion schema.GroupVersion, setDefaults func(P)) olderVersion {
	return olderVersion{apiVersion: apiVersion, decoded: P(new(T)), decode: func(stored []byte) (registry.Object, error) {
		obj := P(new(T))
		if err := codec.DecodeStoredInto(stored, obj); err != nil {
			return nil, err
		}
		setDefaults(obj)
		return obj, nil
	}}
}

// versionWithConversion returns a version with other fields, whose Go type is Old. convert sets the
// defaults and converts an object to the storage version. Its result may share memory with the object.
func versionWithConversion[Old any, OldP objectPointer[Old], New registry.Object](
	apiVersion schema.GroupVersion,
	convert func(OldP) (New, error),
) olderVersion {
	return olderVersion{apiVersion: apiVersion, decoded: OldP(new(Old)), decode: func(stored []byte) (registry.Object, error) {
		old := OldP(new(Old))
		if err := codec.DecodeStoredInto(stored, old); err != nil {
			return nil, err
		}
		return convert(old)
	}}
}

// protoMessage is an object with a protobuf encoding.
type protoMessage interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// copyByFieldNumber copies an object to another version through its protobuf encoding. Fields with
// the same number must have the same meaning in both versions; their Go names may differ. It omits
// fields that the other version lacks.
func copyByFieldNumber(from, to protoMessage) error {
	data, err := from.Marshal()
	if err != nil {
		return err
	}
	return to.Unmarshal(data)
}
