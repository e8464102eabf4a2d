package podspec

import (
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
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
		anyEnvName:         s.Enabled(features.RelaxedEnvironmentVariableValidation),
		anySearch:          s.Enabled(features.RelaxedDNSSearchValidation),
		zeroSleep:          s.Enabled(features.PodLifecycleSleepActionAllowZero),
		sleeps:             s.Enabled(features.PodLifecycleSleepAction),
		seLinuxMount:       s.Enabled(features.SELinuxMount),
		podResources:       s.Enabled(features.PodLevelResources),
		resourceClaims:     s.Enabled(features.DynamicResourceAllocation),
		imageVolumes:       s.Enabled(features.ImageVolume),
		trustBundles:       s.Enabled(features.ClusterTrustBundleProjection),
		stopSignals:        s.Enabled(features.ContainerStopSignals),
		resourceHealth:     s.Enabled(features.ResourceHealthStatus),
		observedGeneration: s.Enabled(features.PodObservedGenerationTracking),
		inPlaceResize:      s.Enabled(features.InPlacePodVerticalScaling),
	}
}

// check is one validation of a pod or template, new or as replacement of an old one. It tolerates
// violations that the old one has.
type check struct {
	*Rules
	pod bool
	// kept holds the violations of the old one.
	kept priorViolations
	// whole is the spec that is validated.
	whole *corev1.PodSpec
	// volumes holds the valid volumes by name, claims the names of the resource claims.
	volumes map[string]*corev1.VolumeSource
	claims  validate.Set[string]
}

// priorViolations holds violations of a stored object from before a rule existed, which it may
// keep.
type priorViolations struct {
	deletionCost, envName, search, zeroSleep, seLinuxMount bool
	affinityValue, nodeValue, spreadSelector               bool
	hugePages, tokenPath, hostSysctl, podResources         bool
	sidecarResize                                          bool
}

// newCheck returns a check of a pod or template. old is nil for a new one, oldMeta for a template.
func (r *Rules) newCheck(pod bool, spec, old *corev1.PodSpec, oldMeta *metav1.ObjectMeta) *check {
	c := &check{Rules: r, pod: pod, whole: spec}
	if old == nil {
		return c
	}
	k := &c.kept
	k.deletionCost = oldMeta != nil && !hasValidDeletionCost(oldMeta.Annotations)
	k.affinityValue = hasInvalidAffinityValue(old.Affinity)
	k.nodeValue = hasInvalidNodeValue(old.Affinity)
	k.spreadSelector = hasInvalidSpreadSelector(old.TopologySpreadConstraints)
	k.tokenPath = hasForeignTokenPath(old.Volumes)
	k.hostSysctl = hasHostSysctl(old)
	k.podResources = old.Resources != nil
	k.sidecarResize = slices.ContainsFunc(
		old.InitContainers,
		func(c corev1.Container) bool { return isSidecar(&c) && len(c.ResizePolicy) > 0 },
	)
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

// ValidateTemplate validates the pod template of a workload at a path. old is the stored one, nil
// at creation.
func (r *Rules) ValidateTemplate(fld validate.Field, t, old *corev1.PodTemplateSpec) {
	c := r.templateCheck(t, old)
	fld.CheckLabels("labels", t.Labels)
	fld.CheckAnnotations("annotations", t.Annotations)
	c.validateAnnotations(fld.Child("annotations"), t.Annotations)
	spec := fld.Child("spec")
	c.validateSpec(spec, &t.ObjectMeta)
	c.validateProfiles(spec, t.Annotations)
	spec.ForbidSet("ephemeralContainers", len(t.Spec.EphemeralContainers) > 0, "ephemeral containers not allowed in pod template")
}

// ValidateTemplateMeta validates only the metadata of a template.
func (r *Rules) ValidateTemplateMeta(fld validate.Field, t, old *corev1.PodTemplateSpec) {
	fld.CheckLabels("labels", t.Labels)
	fld.CheckAnnotations("annotations", t.Annotations)
	r.templateCheck(t, old).validateAnnotations(fld.Child("annotations"), t.Annotations)
}

// templateCheck returns a check of a template.
func (r *Rules) templateCheck(t, old *corev1.PodTemplateSpec) *check {
	if old == nil {
		return r.newCheck(false, &t.Spec, nil, nil)
	}
	return r.newCheck(false, &t.Spec, &old.Spec, &old.ObjectMeta)
}

// ValidateReplicatedTemplate validates a template of pods that always restart and are selected by a
// selector. owner is the kind in messages.
func (r *Rules) ValidateReplicatedTemplate(fld validate.Field, t, old *corev1.PodTemplateSpec, owner string) {
	r.ValidateTemplate(fld, t, old)
	if t.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		validate.OneOf(fld.Child("spec"), "restartPolicy", t.Spec.RestartPolicy, corev1.RestartPolicyAlways)
	}
	fld.Child("spec").ForbidSet("activeDeadlineSeconds", t.Spec.ActiveDeadlineSeconds != nil,
		"activeDeadlineSeconds in "+owner+" is not Supported")
}

// CanResize reports whether the resources of a pod's containers can change in place.
func (r *Rules) CanResize() bool { return r.inPlaceResize }

// validateSpec validates the fields that pods and templates share. m is the metadata of the pod or
// template.
func (c *check) validateSpec(fld validate.Field, m *metav1.ObjectMeta) {
	s := c.whole
	fld.RequireSet("terminationGracePeriodSeconds", s.TerminationGracePeriodSeconds != nil)
	c.validateVolumes(fld, m)
	c.validateResourceClaims(fld)
	c.validateContainers(fld)
	if c.podResources || c.kept.podResources {
		c.validatePodResources(fld)
	}
	if s.HostNetwork {
		c.validateHostPorts(fld)
	}
	validate.RequiredOneOf(fld, "restartPolicy", s.RestartPolicy, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure,
		corev1.RestartPolicyNever)
	validate.RequiredOneOf(fld, "dnsPolicy", s.DNSPolicy,
		corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)
	fld.CheckLabels("nodeSelector", s.NodeSelector)
	if s.SecurityContext != nil {
		c.validatePodSecurity(fld.Child("securityContext"), s.SecurityContext)
	}
	validate.Optional(fld, "affinity", s.Affinity, c.validateAffinity)
	c.validateDNS(fld)
	validate.Each(fld, "readinessGates", s.ReadinessGates, func(fld validate.Field, g *corev1.PodReadinessGate) {
		fld.CheckText("conditionType", string(g.ConditionType), validate.QualifiedName)
	})
	gates := validate.Set[string]{}
	validate.Each(fld, "schedulingGates", s.SchedulingGates, func(fld validate.Field, g *corev1.PodSchedulingGate) {
		fld.CheckText("", g.Name, validate.QualifiedName)
		validate.Unique(fld, "", g.Name, gates)
	})
	c.validateSpreadConstraints(fld)
	c.validateHostProcess(fld)
	c.validateHostUsers(fld)
	fld.CheckOptionalText("serviceAccountName", s.ServiceAccountName, validate.DNSSubdomain)
	fld.CheckOptionalText("nodeName", s.NodeName, validate.DNSSubdomain)
	if s.ActiveDeadlineSeconds != nil {
		validate.InRange(fld, "activeDeadlineSeconds", *s.ActiveDeadlineSeconds, 1, math.MaxInt32)
	}
	fld.CheckOptionalText("hostname", s.Hostname, validate.DNSLabel)
	fld.CheckOptionalText("subdomain", s.Subdomain, validate.DNSLabel)
	validate.Each(fld, "tolerations", s.Tolerations, TolerationRules)
	validate.Each(fld, "hostAliases", s.HostAliases, func(fld validate.Field, h *corev1.HostAlias) {
		fld.CheckIP("ip", h.IP)
		validate.Each(
			fld,
			"hostnames",
			h.Hostnames,
			func(fld validate.Field, name *string) { fld.CheckText("", *name, validate.DNSSubdomain) },
		)
	})
	fld.CheckOptionalText("priorityClassName", s.PriorityClassName, validate.DNSSubdomain)
	if s.RuntimeClassName != nil {
		fld.CheckText("runtimeClassName", *s.RuntimeClassName, validate.DNSSubdomain)
	}
	if p := s.PreemptionPolicy; p != nil {
		validate.RequiredOneOf(fld, "preemptionPolicy", *p, corev1.PreemptLowerPriority, corev1.PreemptNever)
	}
	if s.Overhead != nil {
		c.validateResources(fld.Child("overhead"), &corev1.ResourceRequirements{Limits: s.Overhead}, ValidateContainerResourceName)
	}
	validate.Optional(fld, "os", s.OS, func(path validate.Field, os *corev1.PodOS) { c.validateOS(fld, path, os) })
}

// validateHostPorts validates pods in the host's network. A template may omit host ports; its pods
// get them by default.
func (c *check) validateHostPorts(fld validate.Field) {
	validate.Each(fld, "containers", c.whole.Containers, func(fld validate.Field, ctr *corev1.Container) {
		validate.Each(fld, "ports", ctr.Ports, func(fld validate.Field, p *corev1.ContainerPort) {
			if (c.pod || p.HostPort != 0) && p.HostPort != p.ContainerPort {
				fld.Invalid("hostPort", p.HostPort, "must match `containerPort` when `hostNetwork` is true")
			}
		})
	})
}

// validateResourceClaims validates the resource claims and records their names.
func (c *check) validateResourceClaims(fld validate.Field) {
	c.claims = validate.Set[string]{}
	for i := range c.whole.ResourceClaims {
		if name := c.whole.ResourceClaims[i].Name; name != "" {
			c.claims.Add(name)
		}
	}
	seen := validate.Set[string]{}
	validate.Each(fld, "resourceClaims", c.whole.ResourceClaims, func(fld validate.Field, claim *corev1.PodResourceClaim) {
		switch {
		case claim.Name == "":
			fld.Required("name", "")
		case !seen.Add(claim.Name):
			fld.Duplicate("name", claim.Name)
		default:
			fld.CheckText("name", claim.Name, validate.DNSLabel)
		}
		name := claim.ResourceClaimName
		template := claim.ResourceClaimTemplateName
		shown := *claim
		if name != nil && template != nil {
			fld.Invalid("", shown, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")
		}
		if name == nil && template == nil {
			fld.Invalid("", shown, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
		}
		if name != nil {
			fld.CheckText("resourceClaimName", *name, validate.DNSSubdomain)
		}
		if template != nil {
			fld.CheckText("resourceClaimTemplateName", *template, validate.DNSSubdomain)
		}
	})
}

// PodsOf describes the pod template in objects of a Go type.
type PodsOf[T registry.Object] struct {
	// Template returns the template of an object, or nil.
	Template func(T) *corev1.PodTemplateSpec
	Path     *field.Path
	// HostNames reports whether the pods' host names start with the object's name.
	HostNames bool
	// Around, if set, returns warnings about the fields around the template. They are sent before
	// those of the template.
	Around func(T) []string
	// OwnChanges limits warnings on updates to changes of the template itself.
	OwnChanges bool
	// WarnsOfOld means that warnings on updates are about the object before the update.
	WarnsOfOld bool
}

// warnings returns the warnings of the template and of the fields around it.
func (p *PodsOf[T]) warnings(o T) (texts []string) {
	if p.Around != nil {
		texts = p.Around(o)
	}
	if now := p.Template(o); now != nil {
		texts = append(texts, TemplateWarnings(p.Path, now)...)
	}
	return texts
}

// Default sets the defaults that depend on feature gates.
func (r *Rules) Default(s *corev1.PodSpec) {
	if r.imageVolumes {
		poddefaults.ImageVolumes(s)
	}
}

// WithPodTemplate completes the declaration of a kind with a pod template. It adds the defaults
// that depend on feature gates. Fields of disabled gates are dropped from the template before the
// kind's own Prepare. Warnings about the template precede the kind's own. After an update they are
// sent only if the spec or the generation has changed.
func WithPodTemplate[T registry.Object](rules *Rules, pods PodsOf[T], k *registry.Kind) *registry.Kind {
	create, update, defaults := k.Create, k.Update, k.Default
	template := func(o registry.Object) *corev1.PodTemplateSpec { return pods.Template(o.(T)) }
	k.Default = func(o registry.Object) {
		defaults(o)
		if now := template(o); now != nil {
			rules.Default(&now.Spec)
		}
	}
	k.Create.Prepare = func(o registry.Object) {
		if now := template(o); now != nil {
			rules.DropTemplate(now, nil)
		}
		if create.Prepare != nil {
			create.Prepare(o)
		}
	}
	k.Update.Prepare = func(o, old registry.Object) {
		if now := template(o); now != nil {
			rules.DropTemplate(now, template(old))
		}
		if update.Prepare != nil {
			update.Prepare(o, old)
		}
	}
	k.Create.Warnings = func(o registry.Object) (texts []string) {
		if pods.HostNames {
			texts = nameWarnings(o.GetName())
		}
		texts = append(texts, pods.warnings(o.(T))...)
		if create.Warnings != nil {
			texts = append(texts, create.Warnings(o)...)
		}
		return texts
	}
	k.Update.Warnings = func(o, old registry.Object) (texts []string) {
		changed := k.Parts.SpecChanged(o, old) || o.GetGeneration() != old.GetGeneration()
		if changed && !(pods.OwnChanges && validate.SemanticEqual(template(o), template(old))) {
			warned := o
			if pods.WarnsOfOld {
				warned = old
			}
			texts = pods.warnings(warned.(T))
		}
		if update.Warnings != nil {
			texts = append(texts, update.Warnings(o, old)...)
		}
		return texts
	}
	return k
}

// nameWarnings returns a warning if the name of a workload is no DNS label.
func nameWarnings(name string) []string {
	msgs := validate.DNSLabel(name)
	if len(msgs) == 0 {
		return nil
	}
	return []string{
		fmt.Sprintf("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: %v",
			msgs),
	}
}
