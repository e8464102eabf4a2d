package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	content "k8s.io/apimachinery/pkg/util/validation"

	"binnacle/services/apiserver/internal/registry/validate"
)

// containerRules validates the containers of all types, each with the rules of its type.
func (c *check) containerRules(at validate.At) {
	s := c.whole
	if len(s.Containers) == 0 {
		at.Required("containers", "")
	}
	names := validate.Set[string]{}
	validate.Each(at, "containers", s.Containers, func(at validate.At, ctr *corev1.Container) {
		c.anyContainerRules(at, ctr)
		validate.Unique(at, "name", ctr.Name, names)
		c.lifecycleRules(at, ctr)
		at.Absent("restartPolicy", ctr.RestartPolicy != nil, "may not be set for non-init containers")
	})
	uniqueHostPorts(at, "containers", s.Containers)
	c.initContainerRules(at)
	c.ephemeralContainerRules(at)
}

const notForInit = "may not be set for init containers without restartPolicy=Always"

func (c *check) initContainerRules(at validate.At) {
	s := c.whole
	names := validate.SetOf(s.Containers, containerName)
	for i := range s.InitContainers {
		ctr, place := &s.InitContainers[i], at.Index("initContainers", i)
		c.anyContainerRules(place, ctr)
		validate.OptionalOneOf(place, "restartPolicy", ctr.RestartPolicy, corev1.ContainerRestartPolicyAlways)
		if names.Has(ctr.Name) {
			place.Duplicate("name", ctr.Name)
		} else if ctr.Name != "" {
			names.Add(ctr.Name)
		}
		// Init containers run one at a time, so each may use the same ports. As in Kubernetes, the
		// index in the path is that of a list of one.
		uniqueHostPorts(at, "initContainers", s.InitContainers[i:i+1])
		if isSidecar(ctr) {
			c.lifecycleRules(place, ctr)
		} else {
			place.Absent("lifecycle", ctr.Lifecycle != nil, notForInit)
			place.Absent("livenessProbe", ctr.LivenessProbe != nil, notForInit)
			place.Absent("readinessProbe", ctr.ReadinessProbe != nil, notForInit)
			place.Absent("startupProbe", ctr.StartupProbe != nil, notForInit)
		}
		if !c.inPlaceResize && !c.kept.sidecarResize && len(ctr.ResizePolicy) > 0 {
			place.Invalid("resizePolicy", ctr.ResizePolicy, "must not be set for init containers")
		}
	}
}

const notForEphemeral = "cannot be set for an Ephemeral Container"

func (c *check) ephemeralContainerRules(at validate.At) {
	s := c.whole
	if len(s.EphemeralContainers) == 0 {
		return
	}
	targets := validate.SetOf(s.Containers, containerName)
	for i := range s.InitContainers {
		targets.Add(s.InitContainers[i].Name)
	}
	names := validate.Set[string]{}
	for name := range targets {
		names.Add(name)
	}
	validate.Each(at, "ephemeralContainers", s.EphemeralContainers, func(at validate.At, e *corev1.EphemeralContainer) {
		ctr := (*corev1.Container)(&e.EphemeralContainerCommon)
		c.anyContainerRules(at, ctr)
		trimmedImage(at, ctr)
		validate.Unique(at, "name", e.Name, names)
		if e.TargetContainerName != "" && !targets.Has(e.TargetContainerName) {
			at.NotFound("targetContainerName", e.TargetContainerName)
		}
		at.OnlyFields(e.EphemeralContainerCommon, notForEphemeral,
			"Name", "Image", "Command", "Args", "WorkingDir", "EnvFrom", "Env", "VolumeMounts", "VolumeDevices",
			"TerminationMessagePath", "TerminationMessagePolicy", "ImagePullPolicy", "SecurityContext", "Stdin", "StdinOnce", "TTY")
		validate.Each(at, "volumeMounts", e.VolumeMounts, func(at validate.At, m *corev1.VolumeMount) {
			at.Absent("subPath", m.SubPath != "", notForEphemeral)
			at.Absent("subPathExpr", m.SubPathExpr != "", notForEphemeral)
		})
	})
}

func containerName(c *corev1.Container) string { return c.Name }

// isSidecar reports whether an init container keeps running beside the other containers.
func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// anyContainerRules validates a container of any type.
func (c *check) anyContainerRules(at validate.At, ctr *corev1.Container) {
	at.RequiredText("name", ctr.Name, validate.DNSLabel)
	at.Present("image", ctr.Image != "")
	validate.RequiredOneOf(at, "terminationMessagePolicy", ctr.TerminationMessagePolicy,
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)
	portNames := validate.Set[string]{}
	validate.Each(at, "ports", ctr.Ports, func(at validate.At, p *corev1.ContainerPort) { portRules(at, p, portNames) })
	c.envRules(at, ctr)
	c.mountRules(at, ctr)
	deviceRules(at, ctr, c.volumes)
	pullPolicyRules(at, "imagePullPolicy", ctr.ImagePullPolicy)
	c.resourceRules(at.Child("resources"), &ctr.Resources, ContainerResourceName)
	c.resizePolicyRules(at, ctr.ResizePolicy)
	validate.Optional(at, "securityContext", ctr.SecurityContext, c.securityRules)
}

func pullPolicyRules(at validate.At, name string, p corev1.PullPolicy) {
	validate.RequiredOneOf(at, name, p, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
}

func portRules(at validate.At, p *corev1.ContainerPort, names validate.Set[string]) {
	if p.Name != "" {
		if msgs := validate.PortName(p.Name); len(msgs) > 0 {
			at.Messages("name", p.Name, msgs)
		} else {
			validate.Unique(at, "name", p.Name, names)
		}
	}
	if p.ContainerPort == 0 {
		at.Required("containerPort", "")
	} else {
		at.Port("containerPort", p.ContainerPort)
	}
	if p.HostPort != 0 {
		at.Port("hostPort", p.HostPort)
	}
	Protocol(at, p.Protocol)
}

// Protocol validates the protocol of a port.
func Protocol(at validate.At, p corev1.Protocol) {
	validate.RequiredOneOf(at, "protocol", p, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
}

// uniqueHostPorts rejects host ports that several containers use.
func uniqueHostPorts(at validate.At, name string, containers []corev1.Container) {
	seen := validate.Set[string]{}
	for i := range containers {
		for j := range containers[i].Ports {
			p := &containers[i].Ports[j]
			if p.HostPort == 0 {
				continue
			}
			if key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort); !seen.Add(key) {
				at.Index(name, i).Index("ports", j).Duplicate("hostPort", key)
			}
		}
	}
}

func (c *check) resizePolicyRules(at validate.At, policies []corev1.ContainerResizePolicy) {
	seen := validate.Set[corev1.ResourceName]{}
	for i := range policies {
		p := &policies[i]
		if !seen.Add(p.ResourceName) {
			at.Index("resizePolicy", i).Duplicate("", p.ResourceName)
		}
		validate.RequiredOneOf(at, "resizePolicy", p.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)
		validate.RequiredOneOf(at, "resizePolicy", p.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)
		if c.whole.RestartPolicy == corev1.RestartPolicyNever && p.RestartPolicy != corev1.NotRequired {
			at.Invalid("resizePolicy", p.RestartPolicy, "must be 'NotRequired' when `restartPolicy` is 'Never'")
		}
	}
}

// trimmedImage applies to pods only, because stored templates with such images exist.
func trimmedImage(at validate.At, ctr *corev1.Container) {
	if strings.TrimSpace(ctr.Image) != ctr.Image {
		at.Invalid("image", ctr.Image, "must not have leading or trailing whitespace")
	}
}

const manySources = "may not have more than one field specified at a time"

func (c *check) envName() validate.Format {
	if c.anyEnvName || c.kept.envName {
		return content.IsRelaxedEnvVarName
	}
	return content.IsEnvVarName
}

func hasRelaxedEnvName(ctr *corev1.Container) bool {
	return slices.ContainsFunc(ctr.Env, func(e corev1.EnvVar) bool { return len(content.IsEnvVarName(e.Name)) > 0 }) ||
		slices.ContainsFunc(ctr.EnvFrom, func(e corev1.EnvFromSource) bool {
			return e.Prefix != "" && len(content.IsEnvVarName(e.Prefix)) > 0
		})
}

func (c *check) envRules(at validate.At, ctr *corev1.Container) {
	validate.Each(at, "env", ctr.Env, func(at validate.At, e *corev1.EnvVar) {
		at.RequiredText("name", e.Name, c.envName())
		if e.ValueFrom != nil {
			valueFromRules(at, e)
		}
	})
	validate.Each(at, "envFrom", ctr.EnvFrom, func(place validate.At, e *corev1.EnvFromSource) {
		place.OptionalText("prefix", e.Prefix, c.envName())
		u := place.Choice("")
		validate.Member(u, "configMapRef", e.ConfigMapRef, func(at validate.At, s *corev1.ConfigMapEnvSource) {
			at.RequiredText("name", s.Name, validate.NamePrefix)
		})
		validate.Member(u, "secretRef", e.SecretRef, func(at validate.At, s *corev1.SecretEnvSource) {
			at.RequiredText("name", s.Name, validate.NamePrefix)
		})
		// Both errors are about the list as a whole.
		switch {
		case u.Count() == 0:
			at.Invalid("envFrom", "", "must specify one of: `configMapRef` or `secretRef`")
		case u.Count() > 1:
			at.Invalid("envFrom", "", manySources)
		}
	})
}

func valueFromRules(at validate.At, e *corev1.EnvVar) {
	from := e.ValueFrom
	u := at.Child("valueFrom").Choice("")
	validate.Member(u, "fieldRef", from.FieldRef, func(at validate.At, r *corev1.ObjectFieldSelector) {
		fieldRefRules(at, r, envFields())
	})
	validate.Member(u, "resourceFieldRef", from.ResourceFieldRef, func(at validate.At, r *corev1.ResourceFieldSelector) {
		resourceFieldRules(at, r, false)
	})
	validate.Member(u, "configMapKeyRef", from.ConfigMapKeyRef, func(at validate.At, r *corev1.ConfigMapKeySelector) {
		at.Text("name", r.Name, validate.DNSSubdomain)
		at.RequiredText("key", r.Key, validate.DataKey)
	})
	validate.Member(u, "secretKeyRef", from.SecretKeyRef, func(at validate.At, r *corev1.SecretKeySelector) {
		at.Text("name", r.Name, validate.DNSSubdomain)
		at.RequiredText("key", r.Key, validate.DataKey)
	})
	switch {
	case u.Count() == 0:
		at.Invalid("valueFrom", "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`")
	case e.Value != "":
		at.Invalid("valueFrom", "", "may not be specified when `value` is not empty")
	case u.Count() > 1:
		at.Invalid("valueFrom", "", manySources)
	}
}

// envFields returns the fields of a pod that a variable can refer to, volumeFields those that a
// file can contain, in the order of messages.
func envFields() []string {
	return []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
}

func volumeFields() []string {
	return []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}
}

// downwardFields returns all fields that any reference can name.
func downwardFields() []string {
	return append(envFields(), "metadata.annotations", "metadata.labels", "spec.restartPolicy", "spec.schedulerName", "status.phase")
}

// fieldRefRules requires one of the given fields, or a label or an annotation.
func fieldRefRules(at validate.At, r *corev1.ObjectFieldSelector, fields []string) {
	if r.APIVersion == "" {
		at.Required("apiVersion", "")
		return
	}
	if r.FieldPath == "" {
		at.Required("fieldPath", "")
		return
	}
	unknown := func(why, what string) {
		at.Invalid("fieldPath", r.FieldPath, "error converting fieldPath: "+why+": "+what)
	}
	path, key, keyed := subscript(r.FieldPath)
	if path == "spec.host" && !keyed {
		path = "spec.nodeName"
	}
	switch {
	case r.APIVersion != "v1":
		unknown("unsupported pod version", r.APIVersion)
	case keyed && path == "metadata.annotations":
		at.Text("", strings.ToLower(key), validate.QualifiedName)
	case keyed && path == "metadata.labels":
		at.Text("", key, validate.QualifiedName)
	case keyed:
		unknown("field label does not support subscript", r.FieldPath)
	case !slices.Contains(downwardFields(), path):
		unknown("field label not supported", path)
	default:
		validate.OneOf(at, "fieldPath", path, fields...)
	}
}

// subscript splits metadata.labels['key'].
func subscript(path string) (base, key string, ok bool) {
	if inner, closed := strings.CutSuffix(path, "']"); closed {
		base, key, ok = strings.Cut(inner, "['")
		if ok && base != "" {
			return base, key, true
		}
	}
	return path, "", false
}

const (
	hugeRequests = "requests.hugepages-"
	hugeLimits   = "limits.hugepages-"
)

// resourceFieldRules requires a resource of a container. A file must name the container.
func resourceFieldRules(at validate.At, r *corev1.ResourceFieldSelector, file bool) {
	huge := strings.HasPrefix(r.Resource, hugeRequests) || strings.HasPrefix(r.Resource, hugeLimits)
	switch {
	case file && r.ContainerName == "":
		at.Required("containerName", "")
	case r.Resource == "":
		at.Required("resource", "")
	case !huge:
		validate.OneOf(at, "resource", r.Resource,
			"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory")
	}
	divisorRules(at, r.Resource, r.Divisor, huge)
}

func divisorRules(at validate.At, name string, divisor resource.Quantity, huge bool) {
	if divisor.IsZero() {
		return
	}
	allowed := []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
	shown, what := strings.Join(allowed, ", "), ""
	switch _, of, _ := strings.Cut(name, "."); {
	case huge:
		what = "hugepages"
	case of == "cpu":
		allowed = []string{"1m", "1"}
		shown = "1m and 1"
		what = "cpu"
	case of == "memory":
		what = "memory"
	case of == "ephemeral-storage":
		what = "local ephemeral storage"
	default:
		return
	}
	if !slices.Contains(allowed, divisor.String()) {
		at.Invalid("divisor", name, fmt.Sprintf("only divisor's values %s are supported with the %s resource", shown, what))
	}
}
