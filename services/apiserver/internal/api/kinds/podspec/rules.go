package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/validate"
)

// Rules holds the settings for the rules of pods and pod templates. It is immutable.
type Rules struct {
	privileged bool

	anyEnvName, anySearch, zeroSleep, seLinuxMount                        bool
	podResources, resourceClaims, imageVolumes, trustBundles, stopSignals bool
	resourceHealth, observedGeneration, inPlaceResize, sleeps             bool
}

// NewRules returns the rules for the server's settings.
func NewRules(s registry.Settings) *Rules {
	return &Rules{
		privileged:         s.AllowPrivileged,
		anyEnvName:         s.On(features.RelaxedEnvironmentVariableValidation),
		anySearch:          s.On(features.RelaxedDNSSearchValidation),
		zeroSleep:          s.On(features.PodLifecycleSleepActionAllowZero),
		sleeps:             s.On(features.PodLifecycleSleepAction),
		seLinuxMount:       s.On(features.SELinuxMount),
		podResources:       s.On(features.PodLevelResources),
		resourceClaims:     s.On(features.DynamicResourceAllocation),
		imageVolumes:       s.On(features.ImageVolume),
		trustBundles:       s.On(features.ClusterTrustBundleProjection),
		stopSignals:        s.On(features.ContainerStopSignals),
		resourceHealth:     s.On(features.ResourceHealthStatus),
		observedGeneration: s.On(features.PodObservedGenerationTracking),
		inPlaceResize:      s.On(features.InPlacePodVerticalScaling),
	}
}

// check is one validation of a pod or template, new or as replacement of an old one. It tolerates
// violations that the old one has.
type check struct {
	*Rules
	pod bool
	// kept holds the violations of the old one.
	kept kept
	// whole is the spec that is validated.
	whole *corev1.PodSpec
	// volumes holds the valid volumes by name, claims the names of the resource claims.
	volumes map[string]*corev1.VolumeSource
	claims  validate.Set[string]
}

// kept holds violations of a stored object from before a rule existed, which it may keep.
type kept struct {
	deletionCost, envName, search, zeroSleep, seLinuxMount bool
	affinityValue, nodeValue, spreadSelector               bool
	hugePages, tokenPath, hostSysctl, podResources         bool
	sidecarResize                                          bool
}

func (r *Rules) newCheck(pod bool, spec, old *corev1.PodSpec, oldMeta *metav1.ObjectMeta) *check {
	c := &check{Rules: r, pod: pod, whole: spec}
	if old == nil {
		return c
	}
	k := &c.kept
	k.deletionCost = oldMeta != nil && !validDeletionCost(oldMeta.Annotations)
	k.affinityValue = hasInvalidAffinityValue(old.Affinity)
	k.nodeValue = hasInvalidNodeValue(old.Affinity)
	k.spreadSelector = hasInvalidSpreadSelector(old.TopologySpreadConstraints)
	k.tokenPath = hasForeignTokenPath(old.Volumes)
	k.hostSysctl = hasHostSysctl(old)
	k.podResources = old.Resources != nil
	k.sidecarResize = slices.ContainsFunc(old.InitContainers, func(c corev1.Container) bool { return isSidecar(&c) && len(c.ResizePolicy) > 0 })
	k.search = old.DNSConfig != nil && hasRelaxedSearch(old.DNSConfig.Searches)
	k.seLinuxMount = old.SecurityContext != nil && old.SecurityContext.SELinuxChangePolicy != nil &&
		*old.SecurityContext.SELinuxChangePolicy == corev1.SELinuxChangePolicyMountOption
	eachContainer(old, func(_ string, _ int, ctr *corev1.Container) {
		k.envName = k.envName || hasRelaxedEnvName(ctr)
		k.zeroSleep = k.zeroSleep || hasZeroSleep(ctr.Lifecycle)
		k.hugePages = k.hugePages || hasOddHugePages(&ctr.Resources)
	})
	return c
}

// eachContainer calls visit for the containers of every type, with the name of their list.
func eachContainer(s *corev1.PodSpec, visit func(list string, i int, c *corev1.Container)) {
	for i := range s.InitContainers {
		visit("initContainers", i, &s.InitContainers[i])
	}
	for i := range s.Containers {
		visit("containers", i, &s.Containers[i])
	}
	for i := range s.EphemeralContainers {
		visit("ephemeralContainers", i, (*corev1.Container)(&s.EphemeralContainers[i].EphemeralContainerCommon))
	}
}

// Template validates the pod template of a workload at a path. old is the stored one, nil at
// creation.
func (r *Rules) Template(at validate.At, t, old *corev1.PodTemplateSpec) {
	c := r.templateCheck(t, old)
	at.Labels("labels", t.Labels)
	at.Annotations("annotations", t.Annotations)
	c.annotations(at.Child("annotations"), t.Annotations)
	spec := at.Child("spec")
	c.spec(spec, &t.ObjectMeta)
	c.profilesAgree(spec, t.Annotations)
	spec.Absent("ephemeralContainers", len(t.Spec.EphemeralContainers) > 0, "ephemeral containers not allowed in pod template")
}

// TemplateMeta validates only the metadata of a template.
func (r *Rules) TemplateMeta(at validate.At, t, old *corev1.PodTemplateSpec) {
	at.Labels("labels", t.Labels)
	at.Annotations("annotations", t.Annotations)
	r.templateCheck(t, old).annotations(at.Child("annotations"), t.Annotations)
}

func (r *Rules) templateCheck(t, old *corev1.PodTemplateSpec) *check {
	if old == nil {
		return r.newCheck(false, &t.Spec, nil, nil)
	}
	return r.newCheck(false, &t.Spec, &old.Spec, &old.ObjectMeta)
}

// ReplicatedTemplate validates a template of pods that always restart and are selected by a
// selector. owner is the kind in messages.
func (r *Rules) ReplicatedTemplate(at validate.At, t, old *corev1.PodTemplateSpec, owner string) {
	r.Template(at, t, old)
	if t.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		validate.OneOf(at.Child("spec"), "restartPolicy", t.Spec.RestartPolicy, corev1.RestartPolicyAlways)
	}
	at.Child("spec").Absent("activeDeadlineSeconds", t.Spec.ActiveDeadlineSeconds != nil,
		"activeDeadlineSeconds in "+owner+" is not Supported")
}

// Resizes reports whether the resources of a pod's containers can change in place.
func (r *Rules) Resizes() bool { return r.inPlaceResize }
