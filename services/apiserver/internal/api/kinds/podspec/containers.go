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
func (c *check) containerRules(fldPath validate.Path) {
	s := c.whole
	if len(s.Containers) == 0 {
		fldPath.Required("containers", "")
	}
	names := validate.Set[string]{}
	validate.Each(fldPath, "containers", s.Containers, func(fldPath validate.Path, ctr *corev1.Container) {
		c.anyContainerRules(fldPath, ctr)
		validate.Unique(fldPath, "name", ctr.Name, names)
		c.lifecycleRules(fldPath, ctr)
		fldPath.Absent("restartPolicy", ctr.RestartPolicy != nil, "may not be set for non-init containers")
	})
	uniqueHostPorts(fldPath, "containers", s.Containers)
	c.initContainerRules(fldPath)
	c.ephemeralContainerRules(fldPath)
}

const notForInit = "may not be set for init containers without restartPolicy=Always"

func (c *check) initContainerRules(fldPath validate.Path) {
	s := c.whole
	names := validate.KeySet(s.Containers, containerName)
	for i := range s.InitContainers {
		ctr, path := &s.InitContainers[i], fldPath.Index("initContainers", i)
		c.anyContainerRules(path, ctr)
		validate.OptionalOneOf(path, "restartPolicy", ctr.RestartPolicy, corev1.ContainerRestartPolicyAlways)
		if names.Has(ctr.Name) {
			path.Duplicate("name", ctr.Name)
		} else if ctr.Name != "" {
			names.Add(ctr.Name)
		}
		// Init containers run one at a time, so each may use the same ports. As in Kubernetes, the
		// index in the path is that of a list of one.
		uniqueHostPorts(fldPath, "initContainers", s.InitContainers[i:i+1])
		if isSidecar(ctr) {
			c.lifecycleRules(path, ctr)
		} else {
			path.Absent("lifecycle", ctr.Lifecycle != nil, notForInit)
			path.Absent("livenessProbe", ctr.LivenessProbe != nil, notForInit)
			path.Absent("readinessProbe", ctr.ReadinessProbe != nil, notForInit)
			path.Absent("startupProbe", ctr.StartupProbe != nil, notForInit)
		}
		if !c.inPlaceResize && !c.kept.sidecarResize && len(ctr.ResizePolicy) > 0 {
			path.Invalid("resizePolicy", ctr.ResizePolicy, "must not be set for init containers")
		}
	}
}

const notForEphemeral = "cannot be set for an Ephemeral Container"

func (c *check) ephemeralContainerRules(fldPath validate.Path) {
	s := c.whole
	if len(s.EphemeralContainers) == 0 {
		return
	}
	targets := validate.KeySet(s.Containers, containerName)
	for i := range s.InitContainers {
		targets.Add(s.InitContainers[i].Name)
	}
	names := validate.Set[string]{}
	for name := range targets {
		names.Add(name)
	}
	validate.Each(fldPath, "ephemeralContainers", s.EphemeralContainers, func(fldPath validate.Path, e *corev1.EphemeralContainer) {
		ctr := (*corev1.Container)(&e.EphemeralContainerCommon)
		c.anyContainerRules(fldPath, ctr)
		trimmedImage(fldPath, ctr)
		validate.Unique(fldPath, "name", e.Name, names)
		if e.TargetContainerName != "" && !targets.Has(e.TargetContainerName) {
			fldPath.NotFound("targetContainerName", e.TargetContainerName)
		}
		fldPath.OnlyFields(e.EphemeralContainerCommon, notForEphemeral,
			"Name", "Image", "Command", "Args", "WorkingDir", "EnvFrom", "Env", "VolumeMounts", "VolumeDevices",
			"TerminationMessagePath", "TerminationMessagePolicy", "ImagePullPolicy", "SecurityContext", "Stdin", "StdinOnce", "TTY")
		validate.Each(fldPath, "volumeMounts", e.VolumeMounts, func(fldPath validate.Path, m *corev1.VolumeMount) {
			fldPath.Absent("subPath", m.SubPath != "", notForEphemeral)
			fldPath.Absent("subPathExpr", m.SubPathExpr != "", notForEphemeral)
		})
	})
}

func containerName(c *corev1.Container) string { return c.Name }

// isSidecar reports whether an init container keeps running beside the other containers.
func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// anyContainerRules validates a container of any type.
func (c *check) anyContainerRules(fldPath validate.Path, ctr *corev1.Container) {
	fldPath.RequiredText("name", ctr.Name, validate.DNSLabel)
	fldPath.Present("image", ctr.Image != "")
	validate.RequiredOneOf(fldPath, "terminationMessagePolicy", ctr.TerminationMessagePolicy,
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)
	portNames := validate.Set[string]{}
	validate.Each(fldPath, "ports", ctr.Ports, func(fldPath validate.Path, p *corev1.ContainerPort) { portRules(fldPath, p, portNames) })
	c.envRules(fldPath, ctr)
	c.mountRules(fldPath, ctr)
	deviceRules(fldPath, ctr, c.volumes)
	pullPolicyRules(fldPath, "imagePullPolicy", ctr.ImagePullPolicy)
	c.resourceRules(fldPath.Child("resources"), &ctr.Resources, ContainerResourceName)
	c.resizePolicyRules(fldPath, ctr.ResizePolicy)
	validate.Optional(fldPath, "securityContext", ctr.SecurityContext, c.securityRules)
}

func pullPolicyRules(fldPath validate.Path, name string, p corev1.PullPolicy) {
	validate.RequiredOneOf(fldPath, name, p, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
}

func portRules(fldPath validate.Path, p *corev1.ContainerPort, names validate.Set[string]) {
	if p.Name != "" {
		if msgs := validate.PortName(p.Name); len(msgs) > 0 {
			fldPath.InvalidMessages("name", p.Name, msgs)
		} else {
			validate.Unique(fldPath, "name", p.Name, names)
		}
	}
	if p.ContainerPort == 0 {
		fldPath.Required("containerPort", "")
	} else {
		fldPath.Port("containerPort", p.ContainerPort)
	}
	if p.HostPort != 0 {
		fldPath.Port("hostPort", p.HostPort)
	}
	Protocol(fldPath, p.Protocol)
}

// Protocol validates the protocol of a port.
func Protocol(fldPath validate.Path, p corev1.Protocol) {
	validate.RequiredOneOf(fldPath, "protocol", p, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
}

// uniqueHostPorts rejects host ports that several containers use.
func uniqueHostPorts(fldPath validate.Path, name string, containers []corev1.Container) {
	seen := validate.Set[string]{}
	for i := range containers {
		for j := range containers[i].Ports {
			p := &containers[i].Ports[j]
			if p.HostPort == 0 {
				continue
			}
			if key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort); !seen.Add(key) {
				fldPath.Index(name, i).Index("ports", j).Duplicate("hostPort", key)
			}
		}
	}
}

func (c *check) resizePolicyRules(fldPath validate.Path, policies []corev1.ContainerResizePolicy) {
	seen := validate.Set[corev1.ResourceName]{}
	for i := range policies {
		p := &policies[i]
		if !seen.Add(p.ResourceName) {
			fldPath.Index("resizePolicy", i).Duplicate("", p.ResourceName)
		}
		validate.RequiredOneOf(fldPath, "resizePolicy", p.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)
		validate.RequiredOneOf(fldPath, "resizePolicy", p.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)
		if c.whole.RestartPolicy == corev1.RestartPolicyNever && p.RestartPolicy != corev1.NotRequired {
			fldPath.Invalid("resizePolicy", p.RestartPolicy, "must be 'NotRequired' when `restartPolicy` is 'Never'")
		}
	}
}

// trimmedImage applies to pods only, because stored templates with such images exist.
func trimmedImage(fldPath validate.Path, ctr *corev1.Container) {
	if strings.TrimSpace(ctr.Image) != ctr.Image {
		fldPath.Invalid("image", ctr.Image, "must not have leading or trailing whitespace")
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

func (c *check) envRules(fldPath validate.Path, ctr *corev1.Container) {
	validate.Each(fldPath, "env", ctr.Env, func(fldPath validate.Path, e *corev1.EnvVar) {
		fldPath.RequiredText("name", e.Name, c.envName())
		if e.ValueFrom != nil {
			valueFromRules(fldPath, e)
		}
	})
	validate.Each(fldPath, "envFrom", ctr.EnvFrom, func(path validate.Path, e *corev1.EnvFromSource) {
		path.OptionalText("prefix", e.Prefix, c.envName())
		u := path.Union("")
		validate.Member(u, "configMapRef", e.ConfigMapRef, func(fldPath validate.Path, s *corev1.ConfigMapEnvSource) {
			fldPath.RequiredText("name", s.Name, validate.NamePrefix)
		})
		validate.Member(u, "secretRef", e.SecretRef, func(fldPath validate.Path, s *corev1.SecretEnvSource) {
			fldPath.RequiredText("name", s.Name, validate.NamePrefix)
		})
		// Both errors are about the list as a whole.
		switch {
		case u.Count() == 0:
			fldPath.Invalid("envFrom", "", "must specify one of: `configMapRef` or `secretRef`")
		case u.Count() > 1:
			fldPath.Invalid("envFrom", "", manySources)
		}
	})
}

func valueFromRules(fldPath validate.Path, e *corev1.EnvVar) {
	from := e.ValueFrom
	u := fldPath.Child("valueFrom").Union("")
	validate.Member(u, "fieldRef", from.FieldRef, func(fldPath validate.Path, r *corev1.ObjectFieldSelector) {
		fieldRefRules(fldPath, r, envFields())
	})
	validate.Member(u, "resourceFieldRef", from.ResourceFieldRef, func(fldPath validate.Path, r *corev1.ResourceFieldSelector) {
		resourceFieldRules(fldPath, r, false)
	})
	validate.Member(u, "configMapKeyRef", from.ConfigMapKeyRef, func(fldPath validate.Path, r *corev1.ConfigMapKeySelector) {
		fldPath.Text("name", r.Name, validate.DNSSubdomain)
		fldPath.RequiredText("key", r.Key, validate.DataKey)
	})
	validate.Member(u, "secretKeyRef", from.SecretKeyRef, func(fldPath validate.Path, r *corev1.SecretKeySelector) {
		fldPath.Text("name", r.Name, validate.DNSSubdomain)
		fldPath.RequiredText("key", r.Key, validate.DataKey)
	})
	switch {
	case u.Count() == 0:
		fldPath.Invalid("valueFrom", "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`")
	case e.Value != "":
		fldPath.Invalid("valueFrom", "", "may not be specified when `value` is not empty")
	case u.Count() > 1:
		fldPath.Invalid("valueFrom", "", manySources)
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
func fieldRefRules(fldPath validate.Path, r *corev1.ObjectFieldSelector, fields []string) {
	if r.APIVersion == "" {
		fldPath.Required("apiVersion", "")
		return
	}
	if r.FieldPath == "" {
		fldPath.Required("fieldPath", "")
		return
	}
	unknown := func(reason, description string) {
		fldPath.Invalid("fieldPath", r.FieldPath, "error converting fieldPath: "+reason+": "+description)
	}
	path, key, keyed := subscript(r.FieldPath)
	if path == "spec.host" && !keyed {
		path = "spec.nodeName"
	}
	switch {
	case r.APIVersion != "v1":
		unknown("unsupported pod version", r.APIVersion)
	case keyed && path == "metadata.annotations":
		fldPath.Text("", strings.ToLower(key), validate.QualifiedName)
	case keyed && path == "metadata.labels":
		fldPath.Text("", key, validate.QualifiedName)
	case keyed:
		unknown("field label does not support subscript", r.FieldPath)
	case !slices.Contains(downwardFields(), path):
		unknown("field label not supported", path)
	default:
		validate.OneOf(fldPath, "fieldPath", path, fields...)
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
func resourceFieldRules(fldPath validate.Path, r *corev1.ResourceFieldSelector, file bool) {
	huge := strings.HasPrefix(r.Resource, hugeRequests) || strings.HasPrefix(r.Resource, hugeLimits)
	switch {
	case file && r.ContainerName == "":
		fldPath.Required("containerName", "")
	case r.Resource == "":
		fldPath.Required("resource", "")
	case !huge:
		validate.OneOf(fldPath, "resource", r.Resource,
			"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory")
	}
	divisorRules(fldPath, r.Resource, r.Divisor, huge)
}

func divisorRules(fldPath validate.Path, name string, divisor resource.Quantity, huge bool) {
	if divisor.IsZero() {
		return
	}
	allowed := []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
	shown, description := strings.Join(allowed, ", "), ""
	switch _, of, _ := strings.Cut(name, "."); {
	case huge:
		description = "hugepages"
	case of == "cpu":
		allowed = []string{"1m", "1"}
		shown = "1m and 1"
		description = "cpu"
	case of == "memory":
		description = "memory"
	case of == "ephemeral-storage":
		description = "local ephemeral storage"
	default:
		return
	}
	if !slices.Contains(allowed, divisor.String()) {
		fldPath.Invalid("divisor", name, fmt.Sprintf("only divisor's values %s are supported with the %s resource", shown, description))
	}
}
