package podspec

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/registry/validate"
)

// spec validates the fields that pods and templates share. m is the metadata of the pod or
// template.
func (c *check) spec(at validate.At, m *metav1.ObjectMeta) {
	s := c.whole
	at.Present("terminationGracePeriodSeconds", s.TerminationGracePeriodSeconds != nil)
	c.volumeRules(at, m)
	c.claimRules(at)
	c.containerRules(at)
	if c.podResources || c.kept.podResources {
		c.podResourceRules(at)
	}
	if s.HostNetwork {
		c.hostPortRules(at)
	}
	validate.RequiredOneOf(at, "restartPolicy", s.RestartPolicy, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	validate.RequiredOneOf(at, "dnsPolicy", s.DNSPolicy,
		corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)
	at.Labels("nodeSelector", s.NodeSelector)
	if s.SecurityContext != nil {
		c.podSecurityRules(at.Child("securityContext"), s.SecurityContext)
	}
	validate.Optional(at, "affinity", s.Affinity, c.affinityRules)
	c.dnsRules(at)
	validate.Each(at, "readinessGates", s.ReadinessGates, func(at validate.At, g *corev1.PodReadinessGate) {
		at.Text("conditionType", string(g.ConditionType), validate.QualifiedName)
	})
	gates := validate.Set[string]{}
	validate.Each(at, "schedulingGates", s.SchedulingGates, func(at validate.At, g *corev1.PodSchedulingGate) {
		at.Text("", g.Name, validate.QualifiedName)
		validate.Unique(at, "", g.Name, gates)
	})
	c.spreadRules(at)
	c.hostProcessRules(at)
	c.hostUserRules(at)
	at.OptionalText("serviceAccountName", s.ServiceAccountName, validate.DNSSubdomain)
	at.OptionalText("nodeName", s.NodeName, validate.DNSSubdomain)
	if s.ActiveDeadlineSeconds != nil {
		validate.InRange(at, "activeDeadlineSeconds", *s.ActiveDeadlineSeconds, 1, math.MaxInt32)
	}
	at.OptionalText("hostname", s.Hostname, validate.DNSLabel)
	at.OptionalText("subdomain", s.Subdomain, validate.DNSLabel)
	validate.Each(at, "tolerations", s.Tolerations, TolerationRules)
	validate.Each(at, "hostAliases", s.HostAliases, func(at validate.At, h *corev1.HostAlias) {
		at.IP("ip", h.IP)
		validate.Each(at, "hostnames", h.Hostnames, func(at validate.At, name *string) { at.Text("", *name, validate.DNSSubdomain) })
	})
	at.OptionalText("priorityClassName", s.PriorityClassName, validate.DNSSubdomain)
	if s.RuntimeClassName != nil {
		at.Text("runtimeClassName", *s.RuntimeClassName, validate.DNSSubdomain)
	}
	if p := s.PreemptionPolicy; p != nil {
		validate.RequiredOneOf(at, "preemptionPolicy", *p, corev1.PreemptLowerPriority, corev1.PreemptNever)
	}
	if s.Overhead != nil {
		c.resourceRules(at.Child("overhead"), &corev1.ResourceRequirements{Limits: s.Overhead}, ContainerResourceName)
	}
	validate.Optional(at, "os", s.OS, func(place validate.At, os *corev1.PodOS) { c.osRules(at, place, os) })
}

// hostPortRules validates pods in the host's network. A template may omit host ports; its pods get
// them by default.
func (c *check) hostPortRules(at validate.At) {
	validate.Each(at, "containers", c.whole.Containers, func(at validate.At, ctr *corev1.Container) {
		validate.Each(at, "ports", ctr.Ports, func(at validate.At, p *corev1.ContainerPort) {
			if (c.pod || p.HostPort != 0) && p.HostPort != p.ContainerPort {
				at.Invalid("hostPort", p.HostPort, "must match `containerPort` when `hostNetwork` is true")
			}
		})
	})
}

func (c *check) claimRules(at validate.At) {
	c.claims = validate.Set[string]{}
	for i := range c.whole.ResourceClaims {
		if name := c.whole.ResourceClaims[i].Name; name != "" {
			c.claims.Add(name)
		}
	}
	seen := validate.Set[string]{}
	validate.Each(at, "resourceClaims", c.whole.ResourceClaims, func(at validate.At, claim *corev1.PodResourceClaim) {
		switch {
		case claim.Name == "":
			at.Required("name", "")
		case !seen.Add(claim.Name):
			at.Duplicate("name", claim.Name)
		default:
			at.Text("name", claim.Name, validate.DNSLabel)
		}
		name, template := claim.ResourceClaimName, claim.ResourceClaimTemplateName
		shown := *claim
		if name != nil && template != nil {
			at.Invalid("", shown, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")
		}
		if name == nil && template == nil {
			at.Invalid("", shown, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
		}
		if name != nil {
			at.Text("resourceClaimName", *name, validate.DNSSubdomain)
		}
		if template != nil {
			at.Text("resourceClaimTemplateName", *template, validate.DNSSubdomain)
		}
	})
}
