package builtin

import (
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apidiscoveryv2beta1 "k8s.io/api/apidiscovery/v2beta1"
	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authenticationv1beta1 "k8s.io/api/authentication/v1beta1"
	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1alpha1 "k8s.io/api/certificates/v1alpha1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1alpha2 "k8s.io/api/coordination/v1alpha2"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagev1alpha1 "k8s.io/api/storage/v1alpha1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	storagemigrationv1alpha1 "k8s.io/api/storagemigration/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	apiextensionsv1beta1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1beta1"
	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
)

// registrations returns the registrations of every group version that is served, stored, or used
// with webhooks.
func registrations() []func(*runtime.Scheme) error {
	return []func(*runtime.Scheme) error{
		addMeta,
		corev1.AddToScheme,
		apiregistrationv1.AddToScheme,
		appsv1.AddToScheme,
		eventsv1.AddToScheme,
		authenticationv1.AddToScheme,
		authorizationv1.AddToScheme,
		autoscalingv2.AddToScheme,
		autoscalingv1.AddToScheme,
		batchv1.AddToScheme,
		certificatesv1.AddToScheme,
		networkingv1.AddToScheme,
		policyv1.AddToScheme,
		rbacv1.AddToScheme,
		storagev1.AddToScheme,
		admissionregistrationv1.AddToScheme,
		apiextensionsv1.AddToScheme,
		apiextensionsv1beta1.AddToScheme,
		schedulingv1.AddToScheme,
		coordinationv1.AddToScheme,
		nodev1.AddToScheme,
		discoveryv1.AddToScheme,
		flowcontrolv1.AddToScheme,

		apidiscoveryv2.AddToScheme,
		apidiscoveryv2beta1.AddToScheme,
		admissionregistrationv1alpha1.AddToScheme,
		admissionv1.AddToScheme,
		admissionv1beta1.AddToScheme,
		authenticationv1beta1.AddToScheme,
		authorizationv1beta1.AddToScheme,
		policyv1beta1.AddToScheme, // evictions
		certificatesv1beta1.AddToScheme,
		coordinationv1beta1.AddToScheme,
		resourcev1beta1.AddToScheme,
		resourcev1beta2.AddToScheme,
		storagev1beta1.AddToScheme,
		apiserverinternalv1alpha1.AddToScheme,
		storagemigrationv1alpha1.AddToScheme,
	}
}

// olderTypes returns the Go types of older versions that equal newer ones, for documentation.
func olderTypes() []func(*runtime.Scheme) error {
	return []func(*runtime.Scheme) error{
		admissionregistrationv1beta1.AddToScheme,
		certificatesv1alpha1.AddToScheme,
		coordinationv1alpha2.AddToScheme,
		flowcontrolv1beta3.AddToScheme,
		networkingv1beta1.AddToScheme,
		resourcev1alpha3.AddToScheme,
		storagev1alpha1.AddToScheme,
	}
}

// addMeta registers the forms that any kind can be returned in, and the types of options, statuses
// and discovery.
func addMeta(s *runtime.Scheme) error {
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return errors.Join(metav1.AddMetaToScheme(s), metav1beta1.AddMetaToScheme(s))
}

// Scheme returns the Go types of all built-in kinds, and those of requests and responses. It panics
// if two types have the same name, which is a bug in this package.
func Scheme() *runtime.Scheme { return schemeOf(append(registrations(), addOlderNames)) }

// Documented returns the Go types for documentation: each version has its own.
func Documented() *runtime.Scheme { return schemeOf(append(registrations(), olderTypes()...)) }

func schemeOf(registrations []func(*runtime.Scheme) error) *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range registrations {
		if err := add(scheme); err != nil {
			panic(fmt.Sprintf("scheme: %v", err))
		}
	}
	return scheme
}

// addOlderNames registers the types of kinds that are also served in an older version with the same
// form.
func addOlderNames(scheme *runtime.Scheme) error {
	for groupVersion, objects := range map[schema.GroupVersion][]runtime.Object{
		{Group: networkingv1.GroupName, Version: "v1beta1"}: {
			&networkingv1.IPAddress{}, &networkingv1.IPAddressList{}, &networkingv1.ServiceCIDR{}, &networkingv1.ServiceCIDRList{},
		},
		{Group: admissionregistrationv1.GroupName, Version: "v1beta1"}: {
			&admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyList{},
			&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{},
		},
		certificatesv1alpha1.SchemeGroupVersion: {&certificatesv1beta1.ClusterTrustBundle{}, &certificatesv1beta1.ClusterTrustBundleList{}},
		coordinationv1alpha2.SchemeGroupVersion: {&coordinationv1beta1.LeaseCandidate{}, &coordinationv1beta1.LeaseCandidateList{}},
		flowcontrolv1beta3.SchemeGroupVersion: {
			&flowcontrolv1.FlowSchema{}, &flowcontrolv1.FlowSchemaList{},
			&flowcontrolv1.PriorityLevelConfiguration{}, &flowcontrolv1.PriorityLevelConfigurationList{},
		},
		storagev1alpha1.SchemeGroupVersion: {&storagev1beta1.VolumeAttributesClass{}, &storagev1beta1.VolumeAttributesClassList{}},
		resourcev1alpha3.SchemeGroupVersion: {
			&resourcev1beta1.DeviceClass{}, &resourcev1beta1.DeviceClassList{},
			&resourcev1beta1.ResourceClaim{}, &resourcev1beta1.ResourceClaimList{},
			&resourcev1beta1.ResourceClaimTemplate{}, &resourcev1beta1.ResourceClaimTemplateList{},
			// These have another form, or are not in other versions.
			&resourcev1alpha3.ResourceSlice{}, &resourcev1alpha3.ResourceSliceList{},
			&resourcev1alpha3.DeviceTaintRule{}, &resourcev1alpha3.DeviceTaintRuleList{},
		},
	} {
		scheme.AddKnownTypes(groupVersion, objects...)
		metav1.AddToGroupVersion(scheme, groupVersion)
	}
	return nil
}
