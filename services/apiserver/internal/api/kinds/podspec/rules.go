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
	// privileged reports whether pods may have privileged containers.
	privileged bool

	// The feature gates, in the order of NewRules.
	relaxedEnvName, relaxedSearch, zeroSleep, seLinuxMount                bool
	podResources, resourceClaims, imageVolumes, trustBundles, stopSignals bool
	resourceHealth, observedGeneration, inPlaceResize, sleepAction        bool
}

// NewRules returns the rules for the server's settings.
func NewRules(settings registry.Settings) *Rules {
	return &Rules{
		privileged:         settings.AllowPrivileged,
		relaxedEnvName:     settings.Enabled(features.RelaxedEnvironmentVariableValidation),
		relaxedSearch:      settings.Enabled(features.RelaxedDNSSearchValidation),
		zeroSleep:          settings.Enabled(features.PodLifecycleSleepActionAllowZero),
		sleepAction:        settings.Enabled(features.PodLifecycleSleepAction),
		seLinuxMount:       settings.Enabled(features.SELinuxMount),
		podResources:       settings.Enabled(features.PodLevelResources),
		resourceClaims:     settings.Enabled(features.DynamicResourceAllocation),
		imageVolumes:       settings.Enabled(features.ImageVolume),
		trustBundles:       settings.Enabled(features.ClusterTrustBundleProjection),
		stopSignals:        settings.Enabled(features.ContainerStopSignals),
		resourceHealth:     settings.Enabled(features.ResourceHealthStatus),
		observedGeneration: settings.Enabled(features.PodObservedGenerationTracking),
		inPlaceResize:      settings.Enabled(features.InPlacePodVerticalScaling),
	}
}

// check is one validation of a pod or a pod template. In an update, it tolerates violations that
// the stored object has.
type check struct {
	*Rules
	// isPod is false for a template.
	isPod bool
	// prior holds the tolerated violations.
	prior priorViolations
	// spec is the spec that is validated.
	spec *corev1.PodSpec
	// volumes holds the valid volumes by name. validateVolumes sets it.
	volumes map[string]*corev1.VolumeSource
	// claims holds the names of the resource claims. validateResourceClaims sets it.
	claims validate.Set[string]
}

// priorViolations reports which rules a stored object violates. It was stored before these rules
// existed or while other gates were enabled, so an update may keep the violations.
type priorViolations struct {
	deletionCost, envName, search, zeroSleep, seLinuxMount bool
	affinityValue, nodeValue, spreadSelector               bool
	hugePages, tokenPath, hostSysctl, podResources         bool
	sidecarResize                                          bool
}

// newCheck returns a check of a pod or template. old and oldMeta are the spec and metadata of the
// stored object. They are nil at creation.
func (r *Rules) newCheck(isPod bool, spec, old *corev1.PodSpec, oldMeta *metav1.ObjectMeta) *check {
	out := &check{Rules: r, isPod: isPod, spec: spec}
	if old == nil {
		return out
	}
	prior := &out.prior
	prior.deletionCost = oldMeta != nil && !hasValidDeletionCost(oldMeta.Annotations)
	prior.affinityValue = hasInvalidAffinityValue(old.Affinity)
	prior.nodeValue = hasInvalidNodeValue(old.Affinity)
	prior.spreadSelector = hasInvalidSpreadSelector(old.TopologySpreadConstraints)
	prior.tokenPath = hasInvalidTokenPath(old.Volumes)
	prior.hostSysctl = hasHostSysctl(old)
	prior.podResources = old.Resources != nil
	prior.sidecarResize = slices.ContainsFunc(
		old.InitContainers,
		func(ctr corev1.Container) bool { return isSidecar(&ctr) && len(ctr.ResizePolicy) > 0 },
	)
	prior.search = old.DNSConfig != nil && hasRelaxedSearch(old.DNSConfig.Searches)
	prior.seLinuxMount = old.SecurityContext != nil && old.SecurityContext.SELinuxChangePolicy != nil &&
		*old.SecurityContext.SELinuxChangePolicy == corev1.SELinuxChangePolicyMountOption
	eachContainer(old, func(_ string, _ int, ctr *corev1.Container) {
		prior.envName = prior.envName || hasRelaxedEnvName(ctr)
		prior.zeroSleep = prior.zeroSleep || hasZeroSleep(ctr.Lifecycle)
		prior.hugePages = prior.hugePages || hasPartialHugePages(&ctr.Resources)
	})
	return out
}

// The first argument of newCheck.
const (
	isPod      = true
	isTemplate = false
)

// eachContainer calls visit for the containers of every type, with the name of their list.
func eachContainer(podSpec *corev1.PodSpec, visit func(list string, i int, c *corev1.Container)) {
	for i := range podSpec.InitContainers {
		visit("initContainers", i, &podSpec.InitContainers[i])
	}
	for i := range podSpec.Containers {
		visit("containers", i, &podSpec.Containers[i])
	}
	for i := range podSpec.EphemeralContainers {
		visit("ephemeralContainers", i, (*corev1.Container)(&podSpec.EphemeralContainers[i].EphemeralContainerCommon))
	}
}

// ValidateTemplate validates the pod template of a workload at a path. old is the stored one, nil
// at creation.
func (r *Rules) ValidateTemplate(fld validate.Field, template, old *corev1.PodTemplateSpec) {
	check := r.templateCheck(template, old)
	fld.CheckLabels("labels", template.Labels)
	fld.CheckAnnotations("annotations", template.Annotations)
	check.validateAnnotations(fld.Child("annotations"), template.Annotations)
	spec := fld.Child("spec")
	check.validateSpec(spec, &template.ObjectMeta)
	check.validateProfiles(spec, template.Annotations)
	spec.ForbidSet("ephemeralContainers", len(template.Spec.EphemeralContainers) > 0, "ephemeral containers not allowed in pod template")
}

// ValidateTemplateMeta validates only the metadata of a template.
func (r *Rules) ValidateTemplateMeta(fld validate.Field, template, old *corev1.PodTemplateSpec) {
	fld.CheckLabels("labels", template.Labels)
	fld.CheckAnnotations("annotations", template.Annotations)
	r.templateCheck(template, old).validateAnnotations(fld.Child("annotations"), template.Annotations)
}

// templateCheck returns a check of a template. old is the stored template, nil at creation.
func (r *Rules) templateCheck(template, old *corev1.PodTemplateSpec) *check {
	if old == nil {
		return r.newCheck(isTemplate, &template.Spec, nil, nil)
	}
	return r.newCheck(isTemplate, &template.Spec, &old.Spec, &old.ObjectMeta)
}

// ValidateReplicatedTemplate validates the template of a workload whose pods always restart. owner is
// the kind of the workload in messages.
func (r *Rules) ValidateReplicatedTemplate(fld validate.Field, template, old *corev1.PodTemplateSpec, owner string) {
	r.ValidateTemplate(fld, template, old)
	if template.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		validate.OneOf(fld.Child("spec"), "restartPolicy", template.Spec.RestartPolicy, corev1.RestartPolicyAlways)
	}
	fld.Child("spec").ForbidSet("activeDeadlineSeconds", template.Spec.ActiveDeadlineSeconds != nil,
		"activeDeadlineSeconds in "+owner+" is not Supported")
}

// CanResize reports whether the resources of a pod's containers can change in place.
func (r *Rules) CanResize() bool { return r.inPlaceResize }

// validateSpec validates the fields that pods and templates share. meta is the metadata of the pod
// or template.
func (c *check) validateSpec(fld validate.Field, meta *metav1.ObjectMeta) {
	podSpec := c.spec
	fld.RequireSet("terminationGracePeriodSeconds", podSpec.TerminationGracePeriodSeconds != nil)

	// Volumes and claims come first, because containers refer to them.
	c.validateVolumes(fld, meta)
	c.validateResourceClaims(fld)
	c.validateContainers(fld)
	if c.podResources || c.prior.podResources {
		c.validatePodResources(fld)
	}
	if podSpec.HostNetwork {
		c.validateHostPorts(fld)
	}
	validate.RequiredOneOf(fld, "restartPolicy", podSpec.RestartPolicy, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure,
		corev1.RestartPolicyNever)
	validate.RequiredOneOf(fld, "dnsPolicy", podSpec.DNSPolicy,
		corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)
	fld.CheckLabels("nodeSelector", podSpec.NodeSelector)

	if podSpec.SecurityContext != nil {
		c.validatePodSecurity(fld.Child("securityContext"), podSpec.SecurityContext)
	}
	validate.Optional(fld, "affinity", podSpec.Affinity, c.validateAffinity)
	c.validateDNS(fld)
	validate.Each(fld, "readinessGates", podSpec.ReadinessGates, func(fld validate.Field, g *corev1.PodReadinessGate) {
		fld.CheckText("conditionType", string(g.ConditionType), validate.QualifiedName)
	})

	gates := validate.Set[string]{}
	validate.Each(fld, "schedulingGates", podSpec.SchedulingGates, func(fld validate.Field, g *corev1.PodSchedulingGate) {
		fld.CheckText("", g.Name, validate.QualifiedName)
		validate.Unique(fld, "", g.Name, gates)
	})
	c.validateSpreadConstraints(fld)
	c.validateHostProcess(fld)
	c.validateHostUsers(fld)

	fld.CheckOptionalText("serviceAccountName", podSpec.ServiceAccountName, validate.DNSSubdomain)
	fld.CheckOptionalText("nodeName", podSpec.NodeName, validate.DNSSubdomain)
	if podSpec.ActiveDeadlineSeconds != nil {
		validate.InRange(fld, "activeDeadlineSeconds", *podSpec.ActiveDeadlineSeconds, 1, math.MaxInt32)
	}
	fld.CheckOptionalText("hostname", podSpec.Hostname, validate.DNSLabel)
	fld.CheckOptionalText("subdomain", podSpec.Subdomain, validate.DNSLabel)
	validate.Each(fld, "tolerations", podSpec.Tolerations, TolerationRules)
	validate.Each(fld, "hostAliases", podSpec.HostAliases, func(fld validate.Field, hostAlias *corev1.HostAlias) {
		fld.CheckIP("ip", hostAlias.IP)
		validate.Each(
			fld,
			"hostnames",
			hostAlias.Hostnames,
			func(fld validate.Field, name *string) { fld.CheckText("", *name, validate.DNSSubdomain) },
		)
	})
	fld.CheckOptionalText("priorityClassName", podSpec.PriorityClassName, validate.DNSSubdomain)
	if podSpec.RuntimeClassName != nil {
		fld.CheckText("runtimeClassName", *podSpec.RuntimeClassName, validate.DNSSubdomain)
	}
	if p := podSpec.PreemptionPolicy; p != nil {
		validate.RequiredOneOf(fld, "preemptionPolicy", *p, corev1.PreemptLowerPriority, corev1.PreemptNever)
	}
	if podSpec.Overhead != nil {
		c.validateResources(fld.Child("overhead"), &corev1.ResourceRequirements{Limits: podSpec.Overhead}, ValidateContainerResourceName)
	}
	validate.Optional(fld, "os", podSpec.OS, func(path validate.Field, os *corev1.PodOS) { c.validateOS(fld, path, os) })
}

// validateHostPorts requires the host port of pods in the host's network to equal the container
// port. A template may omit host ports, because they are set by default.
func (c *check) validateHostPorts(fld validate.Field) {
	validate.Each(fld, "containers", c.spec.Containers, func(fld validate.Field, ctr *corev1.Container) {
		validate.Each(fld, "ports", ctr.Ports, func(fld validate.Field, p *corev1.ContainerPort) {
			if (c.isPod || p.HostPort != 0) && p.HostPort != p.ContainerPort {
				fld.Invalid("hostPort", p.HostPort, "must match `containerPort` when `hostNetwork` is true")
			}
		})
	})
}

// validateResourceClaims validates the resource claims and records their names.
func (c *check) validateResourceClaims(fld validate.Field) {
	c.claims = validate.Set[string]{}
	for i := range c.spec.ResourceClaims {
		if name := c.spec.ResourceClaims[i].Name; name != "" {
			c.claims.Add(name)
		}
	}
	seen := validate.Set[string]{}
	validate.Each(fld, "resourceClaims", c.spec.ResourceClaims, func(fld validate.Field, claim *corev1.PodResourceClaim) {
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
		if name != nil && template != nil {
			fld.Invalid("", *claim, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")
		}
		if name == nil && template == nil {
			fld.Invalid("", *claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
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
	// Path is the path of the template in warnings.
	Path *field.Path
	// HostNames reports whether the pods' host names start with the object's name.
	HostNames bool
	// WarnAround, if set, returns warnings about the fields around the template. They precede those
	// about the template.
	WarnAround func(T) []string
	// WarnOfTemplateOnly limits warnings on updates to changes of the template itself.
	WarnOfTemplateOnly bool
	// WarnOfOld makes warnings on updates those about the object before the update.
	WarnOfOld bool
}

// warnings returns the warnings of the template and of the fields around it.
func (p *PodsOf[T]) warnings(o T) (texts []string) {
	if p.WarnAround != nil {
		texts = p.WarnAround(o)
	}
	if template := p.Template(o); template != nil {
		texts = append(texts, TemplateWarnings(p.Path, template)...)
	}
	return texts
}

// Default sets the defaults that depend on feature gates.
func (r *Rules) Default(spec *corev1.PodSpec) {
	if r.imageVolumes {
		poddefaults.ImageVolumes(spec)
	}
}

// WithPodTemplate completes the declaration of a kind with a pod template. It adds the defaults
// that depend on feature gates. Fields of disabled gates are dropped from the template before the
// kind's own Prepare. Warnings about the template precede the kind's own. After an update they are
// sent only if the spec or the generation has changed.
func WithPodTemplate[T registry.Object](rules *Rules, pods PodsOf[T], kind *registry.Kind) *registry.Kind {
	create, update, setDefaults := kind.Create, kind.Update, kind.Default
	templateOf := func(object registry.Object) *corev1.PodTemplateSpec { return pods.Template(object.(T)) }
	kind.Default = func(object registry.Object) {
		setDefaults(object)
		if template := templateOf(object); template != nil {
			rules.Default(&template.Spec)
		}
	}
	kind.Create.Prepare = func(object registry.Object) {
		if template := templateOf(object); template != nil {
			rules.DropTemplate(template, nil)
		}
		if create.Prepare != nil {
			create.Prepare(object)
		}
	}
	kind.Update.Prepare = func(object, old registry.Object) {
		if template := templateOf(object); template != nil {
			rules.DropTemplate(template, templateOf(old))
		}
		if update.Prepare != nil {
			update.Prepare(object, old)
		}
	}
	kind.Create.Warnings = func(object registry.Object) (texts []string) {
		if pods.HostNames {
			texts = nameWarnings(object.GetName())
		}
		texts = append(texts, pods.warnings(object.(T))...)
		if create.Warnings != nil {
			texts = append(texts, create.Warnings(object)...)
		}
		return texts
	}
	kind.Update.Warnings = func(object, old registry.Object) (texts []string) {
		changed := kind.Parts.SpecChanged(object, old) || object.GetGeneration() != old.GetGeneration()
		if changed && pods.WarnOfTemplateOnly {
			changed = !validate.SemanticEqual(templateOf(object), templateOf(old))
		}
		if changed {
			subject := object
			if pods.WarnOfOld {
				subject = old
			}
			texts = pods.warnings(subject.(T))
		}
		if update.Warnings != nil {
			texts = append(texts, update.Warnings(object, old)...)
		}
		return texts
	}
	return kind
}

// nameWarnings returns a warning if the name of a workload is not a DNS label.
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
