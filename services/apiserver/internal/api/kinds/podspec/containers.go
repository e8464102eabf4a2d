package podspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	content "k8s.io/apimachinery/pkg/util/validation"

	"binnacle/services/apiserver/internal/registry/validate"
)

// validateContainers validates the containers, init containers and ephemeral containers.
func (c *check) validateContainers(fld validate.Field) {
	podSpec := c.spec
	if len(podSpec.Containers) == 0 {
		fld.Required("containers", "")
	}
	names := validate.Set[string]{}
	validate.Each(fld, "containers", podSpec.Containers, func(fld validate.Field, ctr *corev1.Container) {
		c.validateContainer(fld, ctr)
		validate.Unique(fld, "name", ctr.Name, names)
		c.validateLifecycle(fld, ctr)
		fld.ForbidSet("restartPolicy", ctr.RestartPolicy != nil, "may not be set for non-init containers")
	})
	requireUniqueHostPorts(fld, "containers", podSpec.Containers)
	c.validateInitContainers(fld)
	c.validateEphemeralContainers(fld)
}

const notForInitDetail = "may not be set for init containers without restartPolicy=Always"

func (c *check) validateInitContainers(fld validate.Field) {
	podSpec := c.spec
	names := validate.KeySet(podSpec.Containers, containerName)
	for i := range podSpec.InitContainers {
		ctr, path := &podSpec.InitContainers[i], fld.Index("initContainers", i)
		c.validateContainer(path, ctr)
		validate.OptionalOneOf(path, "restartPolicy", ctr.RestartPolicy, corev1.ContainerRestartPolicyAlways)
		if names.Has(ctr.Name) {
			path.Duplicate("name", ctr.Name)
		} else if ctr.Name != "" {
			names.Add(ctr.Name)
		}
		// Init containers run one at a time, so each may use the same ports. As in Kubernetes, the
		// index in the path is that of a list of one.
		requireUniqueHostPorts(fld, "initContainers", podSpec.InitContainers[i:i+1])
		if isSidecar(ctr) {
			c.validateLifecycle(path, ctr)
		} else {
			path.ForbidSet("lifecycle", ctr.Lifecycle != nil, notForInitDetail)
			path.ForbidSet("livenessProbe", ctr.LivenessProbe != nil, notForInitDetail)
			path.ForbidSet("readinessProbe", ctr.ReadinessProbe != nil, notForInitDetail)
			path.ForbidSet("startupProbe", ctr.StartupProbe != nil, notForInitDetail)
		}
		if !c.inPlaceResize && !c.prior.sidecarResize && len(ctr.ResizePolicy) > 0 {
			path.Invalid("resizePolicy", ctr.ResizePolicy, "must not be set for init containers")
		}
	}
}

const notForEphemeralDetail = "cannot be set for an Ephemeral Container"

func (c *check) validateEphemeralContainers(fld validate.Field) {
	podSpec := c.spec
	if len(podSpec.EphemeralContainers) == 0 {
		return
	}
	targets := validate.KeySet(podSpec.Containers, containerName)
	for i := range podSpec.InitContainers {
		targets.Add(podSpec.InitContainers[i].Name)
	}
	names := maps.Clone(targets)
	validate.Each(fld, "ephemeralContainers", podSpec.EphemeralContainers, func(fld validate.Field, ephemeralContainer *corev1.EphemeralContainer) {
		ctr := (*corev1.Container)(&ephemeralContainer.EphemeralContainerCommon)
		c.validateContainer(fld, ctr)
		requireTrimmedImage(fld, ctr)
		validate.Unique(fld, "name", ephemeralContainer.Name, names)
		if ephemeralContainer.TargetContainerName != "" && !targets.Has(ephemeralContainer.TargetContainerName) {
			fld.NotFound("targetContainerName", ephemeralContainer.TargetContainerName)
		}
		fld.AllowFields(ephemeralContainer.EphemeralContainerCommon, notForEphemeralDetail,
			"Name", "Image", "Command", "Args", "WorkingDir", "EnvFrom", "Env", "VolumeMounts", "VolumeDevices",
			"TerminationMessagePath", "TerminationMessagePolicy", "ImagePullPolicy", "SecurityContext", "Stdin", "StdinOnce", "TTY")
		validate.Each(fld, "volumeMounts", ephemeralContainer.VolumeMounts, func(fld validate.Field, m *corev1.VolumeMount) {
			fld.ForbidSet("subPath", m.SubPath != "", notForEphemeralDetail)
			fld.ForbidSet("subPathExpr", m.SubPathExpr != "", notForEphemeralDetail)
		})
	})
}

func containerName(c *corev1.Container) string { return c.Name }

// isSidecar reports whether an init container keeps running beside the other containers.
func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func (c *check) validateContainer(fld validate.Field, ctr *corev1.Container) {
	fld.CheckRequiredText("name", ctr.Name, validate.DNSLabel)
	fld.RequireSet("image", ctr.Image != "")
	validate.RequiredOneOf(fld, "terminationMessagePolicy", ctr.TerminationMessagePolicy,
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)
	portNames := validate.Set[string]{}
	validate.Each(fld, "ports", ctr.Ports, func(fld validate.Field, p *corev1.ContainerPort) { validatePort(fld, p, portNames) })
	c.validateEnv(fld, ctr)
	c.validateMounts(fld, ctr)
	validateVolumeDevices(fld, ctr, c.volumes)
	validatePullPolicy(fld, "imagePullPolicy", ctr.ImagePullPolicy)
	c.validateResources(fld.Child("resources"), &ctr.Resources, ValidateContainerResourceName)
	c.validateResizePolicies(fld, ctr.ResizePolicy)
	validate.Optional(fld, "securityContext", ctr.SecurityContext, c.validateSecurity)
}

func validatePullPolicy(fld validate.Field, name string, p corev1.PullPolicy) {
	validate.RequiredOneOf(fld, name, p, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
}

func validatePort(fld validate.Field, containerPort *corev1.ContainerPort, names validate.Set[string]) {
	if containerPort.Name != "" {
		if msgs := validate.PortName(containerPort.Name); len(msgs) > 0 {
			fld.InvalidMessages("name", containerPort.Name, msgs)
		} else {
			validate.Unique(fld, "name", containerPort.Name, names)
		}
	}
	if containerPort.ContainerPort == 0 {
		fld.Required("containerPort", "")
	} else {
		fld.CheckPort("containerPort", containerPort.ContainerPort)
	}
	if containerPort.HostPort != 0 {
		fld.CheckPort("hostPort", containerPort.HostPort)
	}
	ValidateProtocol(fld, containerPort.Protocol)
}

// ValidateProtocol validates the protocol of a port.
func ValidateProtocol(fld validate.Field, p corev1.Protocol) {
	validate.RequiredOneOf(fld, "protocol", p, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
}

// requireUniqueHostPorts rejects host ports that several containers use.
func requireUniqueHostPorts(fld validate.Field, name string, containers []corev1.Container) {
	seen := validate.Set[string]{}
	for i := range containers {
		for j := range containers[i].Ports {
			containerPort := &containers[i].Ports[j]
			if containerPort.HostPort == 0 {
				continue
			}
			if key := fmt.Sprintf("%s/%s/%d", containerPort.Protocol, containerPort.HostIP, containerPort.HostPort); !seen.Add(key) {
				fld.Index(name, i).Index("ports", j).Duplicate("hostPort", key)
			}
		}
	}
}

func (c *check) validateResizePolicies(fld validate.Field, policies []corev1.ContainerResizePolicy) {
	seen := validate.Set[corev1.ResourceName]{}
	for i := range policies {
		containerResizePolicy := &policies[i]
		if !seen.Add(containerResizePolicy.ResourceName) {
			fld.Index("resizePolicy", i).Duplicate("", containerResizePolicy.ResourceName)
		}
		validate.RequiredOneOf(fld, "resizePolicy", containerResizePolicy.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)
		validate.RequiredOneOf(fld, "resizePolicy", containerResizePolicy.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)
		if c.spec.RestartPolicy == corev1.RestartPolicyNever && containerResizePolicy.RestartPolicy != corev1.NotRequired {
			fld.Invalid("resizePolicy", containerResizePolicy.RestartPolicy, "must be 'NotRequired' when `restartPolicy` is 'Never'")
		}
	}
}

// requireTrimmedImage rejects white space around an image. It applies to pods only, because stored
// templates with such images exist.
func requireTrimmedImage(fld validate.Field, ctr *corev1.Container) {
	if strings.TrimSpace(ctr.Image) != ctr.Image {
		fld.Invalid("image", ctr.Image, "must not have leading or trailing whitespace")
	}
}

const manySourcesDetail = "may not have more than one field specified at a time"

// envNameFormat returns the format of names and prefixes of variables.
func (c *check) envNameFormat() validate.Format {
	if c.relaxedEnvName || c.prior.envName {
		return content.IsRelaxedEnvVarName
	}
	return content.IsEnvVarName
}

// hasRelaxedEnvName reports whether a name or prefix is valid only with relaxed rules.
func hasRelaxedEnvName(ctr *corev1.Container) bool {
	return slices.ContainsFunc(ctr.Env, func(e corev1.EnvVar) bool { return len(content.IsEnvVarName(e.Name)) > 0 }) ||
		slices.ContainsFunc(ctr.EnvFrom, func(e corev1.EnvFromSource) bool {
			return e.Prefix != "" && len(content.IsEnvVarName(e.Prefix)) > 0
		})
}

// validateEnv validates the environment variables of a container.
func (c *check) validateEnv(fld validate.Field, ctr *corev1.Container) {
	validate.Each(fld, "env", ctr.Env, func(fld validate.Field, variable *corev1.EnvVar) {
		fld.CheckRequiredText("name", variable.Name, c.envNameFormat())
		if variable.ValueFrom != nil {
			validateValueFrom(fld, variable)
		}
	})
	validate.Each(fld, "envFrom", ctr.EnvFrom, func(path validate.Field, source *corev1.EnvFromSource) {
		path.CheckOptionalText("prefix", source.Prefix, c.envNameFormat())
		union := path.Union("")
		validate.Member(union, "configMapRef", source.ConfigMapRef, func(fld validate.Field, s *corev1.ConfigMapEnvSource) {
			fld.CheckRequiredText("name", s.Name, validate.NamePrefix)
		})
		validate.Member(union, "secretRef", source.SecretRef, func(fld validate.Field, s *corev1.SecretEnvSource) {
			fld.CheckRequiredText("name", s.Name, validate.NamePrefix)
		})
		// As in Kubernetes, the path of both errors is that of the list.
		switch {
		case union.Count() == 0:
			fld.Invalid("envFrom", "", "must specify one of: `configMapRef` or `secretRef`")
		case union.Count() > 1:
			fld.Invalid("envFrom", "", manySourcesDetail)
		}
	})
}

// validateValueFrom requires exactly one source of the value of a variable.
func validateValueFrom(fld validate.Field, envVar *corev1.EnvVar) {
	from := envVar.ValueFrom
	union := fld.Child("valueFrom").Union("")
	validate.Member(union, "fieldRef", from.FieldRef, func(fld validate.Field, r *corev1.ObjectFieldSelector) {
		validateFieldRef(fld, r, envFields())
	})
	validate.Member(union, "resourceFieldRef", from.ResourceFieldRef, func(fld validate.Field, r *corev1.ResourceFieldSelector) {
		validateResourceField(fld, r, inVariable)
	})
	validate.Member(union, "configMapKeyRef", from.ConfigMapKeyRef, func(fld validate.Field, r *corev1.ConfigMapKeySelector) {
		fld.CheckText("name", r.Name, validate.DNSSubdomain)
		fld.CheckRequiredText("key", r.Key, validate.DataKey)
	})
	validate.Member(union, "secretKeyRef", from.SecretKeyRef, func(fld validate.Field, r *corev1.SecretKeySelector) {
		fld.CheckText("name", r.Name, validate.DNSSubdomain)
		fld.CheckRequiredText("key", r.Key, validate.DataKey)
	})
	switch {
	case union.Count() == 0:
		fld.Invalid("valueFrom", "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`")
	case envVar.Value != "":
		fld.Invalid("valueFrom", "", "may not be specified when `value` is not empty")
	case union.Count() > 1:
		fld.Invalid("valueFrom", "", manySourcesDetail)
	}
}

// envFields returns the fields of a pod that a variable can refer to, in the order of messages.
func envFields() []string {
	return []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
}

// downwardFields returns all fields that any reference can name.
func downwardFields() []string {
	return append(envFields(), "metadata.annotations", "metadata.labels", "spec.restartPolicy", "spec.schedulerName",
		"status.phase")
}

// validateFieldRef requires one of the given fields, or a label or an annotation.
func validateFieldRef(fld validate.Field, selector *corev1.ObjectFieldSelector, fields []string) {
	if selector.APIVersion == "" {
		fld.Required("apiVersion", "")
		return
	}
	if selector.FieldPath == "" {
		fld.Required("fieldPath", "")
		return
	}
	rejectPath := func(reason, value string) {
		fld.Invalid("fieldPath", selector.FieldPath, "error converting fieldPath: "+reason+": "+value)
	}
	path, key, hasKey := splitSubscript(selector.FieldPath)
	if path == "spec.host" && !hasKey {
		path = "spec.nodeName" // the older name of the field
	}
	switch {
	case selector.APIVersion != "v1":
		rejectPath("unsupported pod version", selector.APIVersion)
	case hasKey && path == "metadata.annotations":
		fld.CheckText("", strings.ToLower(key), validate.QualifiedName)
	case hasKey && path == "metadata.labels":
		fld.CheckText("", key, validate.QualifiedName)
	case hasKey:
		rejectPath("field label does not support subscript", selector.FieldPath)
	case !slices.Contains(downwardFields(), path):
		rejectPath("field label not supported", path)
	default:
		validate.OneOf(fld, "fieldPath", path, fields...)
	}
}

// splitSubscript splits metadata.labels['key'] into metadata.labels and key. It returns other paths
// unchanged.
func splitSubscript(path string) (base, key string, hasKey bool) {
	if inner, closed := strings.CutSuffix(path, "']"); closed {
		base, key, hasKey = strings.Cut(inner, "['")
		if hasKey && base != "" {
			return base, key, true
		}
	}
	return path, "", false
}

// The argument of validateResourceField that tells where the reference occurs.
const (
	inFile     = true
	inVariable = false
)

// validateResourceField requires a resource of a container. A reference in a file must name the
// container.
func validateResourceField(fld validate.Field, resourceFieldSelector *corev1.ResourceFieldSelector, inFile bool) {
	isHugePages := strings.HasPrefix(resourceFieldSelector.Resource, "requests.hugepages-") || strings.HasPrefix(resourceFieldSelector.Resource, "limits.hugepages-")
	switch {
	case inFile && resourceFieldSelector.ContainerName == "":
		fld.Required("containerName", "")
	case resourceFieldSelector.Resource == "":
		fld.Required("resource", "")
	case !isHugePages:
		validate.OneOf(fld, "resource", resourceFieldSelector.Resource,
			"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory")
	}
	validateDivisor(fld, resourceFieldSelector.Resource, resourceFieldSelector.Divisor, isHugePages)
}

// validateDivisor requires a unit of the resource, or no divisor.
func validateDivisor(fld validate.Field, name string, divisor resource.Quantity, isHugePages bool) {
	if divisor.IsZero() {
		return
	}
	allowed := []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
	allowedText, description := strings.Join(allowed, ", "), ""
	switch _, resourceName, _ := strings.Cut(name, "."); {
	case isHugePages:
		description = "hugepages"
	case resourceName == "cpu":
		allowed = []string{"1m", "1"}
		allowedText = "1m and 1"
		description = "cpu"
	case resourceName == "memory":
		description = "memory"
	case resourceName == "ephemeral-storage":
		description = "local ephemeral storage"
	default:
		return
	}
	if !slices.Contains(allowed, divisor.String()) {
		fld.Invalid("divisor", name, fmt.Sprintf("only divisor's values %s are supported with the %s resource", allowedText, description))
	}
}
