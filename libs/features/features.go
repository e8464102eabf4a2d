// Package features holds the feature gates of a service. A gate is a named switch. Its stage
// determines the default and whether the value may be changed (specification: "Feature-gate
// lifecycle"). Names, stages and defaults are those of the emulated version of Kubernetes.
//
// A Gates value is a command-line flag: Set parses it, Emulate selects the version, Validate checks
// the result, and Enabled reads a gate.
package features

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/version"
)

// Gate is the name of a feature.
type Gate string

// Gates that services of the suite read. A gate that keeps a field permits requests to set it.
// Without the gate, the server drops the field from objects, except from those that use it already.
const (
	// AllowUnsafeMalformedObjectDeletion enables the delete option for objects that cannot be
	// decoded.
	AllowUnsafeMalformedObjectDeletion Gate = "AllowUnsafeMalformedObjectDeletion"
	// StorageVersionAPI, with APIServerIdentity, makes replicas publish the versions in which they
	// store resources.
	StorageVersionAPI Gate = "StorageVersionAPI"
	// StorageVersionMigrator serves StorageVersionMigration objects.
	StorageVersionMigrator Gate = "StorageVersionMigrator"
	APIServerIdentity      Gate = "APIServerIdentity"
	// WatchCacheInitializationPostStartHook makes health checks wait for the watch cache.
	WatchCacheInitializationPostStartHook Gate = "WatchCacheInitializationPostStartHook"
	// UnknownVersionInteroperabilityProxy, with StorageVersionAPI and APIServerIdentity, makes
	// replicas proxy requests for resources that they do not serve to each other.
	UnknownVersionInteroperabilityProxy Gate = "UnknownVersionInteroperabilityProxy"
	// APIServerTracing enables traces with --tracing-config-file.
	APIServerTracing Gate = "APIServerTracing"
	// KMSv1 allows plugins of that version to encrypt values.
	KMSv1 Gate = "KMSv1"
	// AllowServiceLBStatusOnNonLB allows services of any type to have a load balancer status.
	AllowServiceLBStatusOnNonLB Gate = "AllowServiceLBStatusOnNonLB"
	// ClusterTrustBundleProjection, ContainerStopSignals, DynamicResourceAllocation, ImageVolume
	// and PodLevelResources keep the pod fields of these features. ResourceHealthStatus and
	// PodObservedGenerationTracking keep fields of the pod status.
	ClusterTrustBundleProjection  Gate = "ClusterTrustBundleProjection"
	ContainerStopSignals          Gate = "ContainerStopSignals"
	DynamicResourceAllocation     Gate = "DynamicResourceAllocation"
	ImageVolume                   Gate = "ImageVolume"
	PodLevelResources             Gate = "PodLevelResources"
	ResourceHealthStatus          Gate = "ResourceHealthStatus"
	PodObservedGenerationTracking Gate = "PodObservedGenerationTracking"
	// DeploymentReplicaSetTerminatingReplicas keeps the number of terminating replicas in the
	// status of Deployments and ReplicaSets.
	DeploymentReplicaSetTerminatingReplicas Gate = "DeploymentReplicaSetTerminatingReplicas"
	// PodTopologyLabelsAdmission copies the topology labels of the node to pods.
	PodTopologyLabelsAdmission Gate = "PodTopologyLabelsAdmission"
	// CoordinatedLeaderElection lets the server elect leaders.
	CoordinatedLeaderElection Gate = "CoordinatedLeaderElection"
	// InPlacePodVerticalScaling allows changes of the resources of a pod's containers.
	InPlacePodVerticalScaling Gate = "InPlacePodVerticalScaling"
	// HPAConfigurableTolerance keeps a field of autoscalers. HPAScaleToZero lets autoscalers scale
	// to zero replicas. PreferSameTrafficDistribution keeps hints of endpoint slices, and allows
	// two more values for services.
	HPAConfigurableTolerance      Gate = "HPAConfigurableTolerance"
	HPAScaleToZero                Gate = "HPAScaleToZero"
	PreferSameTrafficDistribution Gate = "PreferSameTrafficDistribution"
	// MaxUnavailableStatefulSet keeps the maxUnavailable field of stateful sets.
	MaxUnavailableStatefulSet Gate = "MaxUnavailableStatefulSet"
	// MutatingAdmissionPolicy serves the kinds of that name and enables the plugin.
	MutatingAdmissionPolicy Gate = "MutatingAdmissionPolicy"
	// PodLifecycleSleepAction keeps hooks that sleep. PodLifecycleSleepActionAllowZero allows a
	// sleep of zero.
	PodLifecycleSleepAction          Gate = "PodLifecycleSleepAction"
	PodLifecycleSleepActionAllowZero Gate = "PodLifecycleSleepActionAllowZero"
	// RelaxedDNSSearchValidation and RelaxedEnvironmentVariableValidation allow more names of DNS
	// search domains and environment variables.
	RelaxedDNSSearchValidation           Gate = "RelaxedDNSSearchValidation"
	RelaxedEnvironmentVariableValidation Gate = "RelaxedEnvironmentVariableValidation"
	// SELinuxMount allows volumes to be mounted with an SELinux label.
	SELinuxMount Gate = "SELinuxMount"
	// AllowInsecureKubeletCertificateSigningRequests lets nodes request certificates for other
	// nodes.
	AllowInsecureKubeletCertificateSigningRequests Gate = "AllowInsecureKubeletCertificateSigningRequests"
	// AuthorizeNodeWithSelectors limits the reads of nodes to their own objects.
	AuthorizeNodeWithSelectors Gate = "AuthorizeNodeWithSelectors"
	// AuthorizeWithSelectors passes the selectors of a request to authorizers.
	AuthorizeWithSelectors Gate = "AuthorizeWithSelectors"
	// AllowParsingUserUIDFromCertAuth takes the user's uid from a client certificate that has one.
	AllowParsingUserUIDFromCertAuth Gate = "AllowParsingUserUIDFromCertAuth"
	// AnonymousAuthConfigurableEndpoints lets the authentication configuration list the paths that
	// allow anonymous requests.
	AnonymousAuthConfigurableEndpoints Gate = "AnonymousAuthConfigurableEndpoints"
	// OpenAPIEnums publishes the allowed values of fields in OpenAPI documents.
	OpenAPIEnums Gate = "OpenAPIEnums"
	// CBORServingAndStorage serves and accepts application/cbor.
	CBORServingAndStorage Gate = "CBORServingAndStorage"
	// CrossNamespaceVolumeDataSource keeps the namespace in the data source of a volume claim.
	// VolumeAttributesClass keeps the volumeAttributesClassName of volumes and volume claims.
	CrossNamespaceVolumeDataSource Gate = "CrossNamespaceVolumeDataSource"
	VolumeAttributesClass          Gate = "VolumeAttributesClass"
	// MutableCSINodeAllocatableCount keeps the field that says how often a driver reports the
	// capacity of a node, and allows changes of the capacity.
	MutableCSINodeAllocatableCount Gate = "MutableCSINodeAllocatableCount"
	// DRAPrioritizedList and DRAAdminAccess keep the fields firstAvailable and adminAccess of the
	// requests in resource claims. DRADeviceTaints keeps taints in resource slices and tolerations
	// in resource claims. DRAPartitionableDevices keeps shared counters in resource slices.
	DRAPrioritizedList      Gate = "DRAPrioritizedList"
	DRAAdminAccess          Gate = "DRAAdminAccess"
	DRADeviceTaints         Gate = "DRADeviceTaints"
	DRAPartitionableDevices Gate = "DRAPartitionableDevices"
	// DRAResourceClaimDeviceStatus keeps the device status that drivers write to a claim.
	DRAResourceClaimDeviceStatus Gate = "DRAResourceClaimDeviceStatus"
	// MultiCIDRServiceAllocator allocates service addresses from ServiceCIDR objects. Without it,
	// the addresses are those of --service-cluster-ip-range.
	MultiCIDRServiceAllocator Gate = "MultiCIDRServiceAllocator"
	// DisableAllocatorDualWrite stores service addresses only as IPAddress objects.
	DisableAllocatorDualWrite Gate = "DisableAllocatorDualWrite"
	// StrictIPCIDRValidation rejects unusual notations of addresses and ranges.
	StrictIPCIDRValidation Gate = "StrictIPCIDRValidation"
	// ClusterTrustBundle serves the kind and lets nodes read it.
	ClusterTrustBundle Gate = "ClusterTrustBundle"
	// KubeletServiceAccountTokenForCredentialProviders lets nodes read the service accounts of
	// their pods.
	KubeletServiceAccountTokenForCredentialProviders Gate = "KubeletServiceAccountTokenForCredentialProviders"
	// DeclarativeValidation runs declarative rules beside the handwritten ones.
	DeclarativeValidation Gate = "DeclarativeValidation"
	// DeclarativeValidationTakeover makes the declarative rules decide.
	DeclarativeValidationTakeover Gate = "DeclarativeValidationTakeover"
	// PodLogsQuerySplitStreams lets clients read a single stream of a log.
	PodLogsQuerySplitStreams Gate = "PodLogsQuerySplitStreams"
	// PortForwardWebsockets forwards ports over WebSocket.
	PortForwardWebsockets Gate = "PortForwardWebsockets"
	// TranslateStreamCloseWebsocketRequests serves commands over WebSocket channels. The kubelet
	// runs them over SPDY.
	TranslateStreamCloseWebsocketRequests Gate = "TranslateStreamCloseWebsocketRequests"
	// ServiceAccountNodeAudienceRestriction limits the tokens that nodes request to audiences that
	// their pods mount.
	ServiceAccountNodeAudienceRestriction Gate = "ServiceAccountNodeAudienceRestriction"
	// ExternalServiceAccountTokenSigner allows an external signer of service account tokens.
	ExternalServiceAccountTokenSigner Gate = "ExternalServiceAccountTokenSigner"
	// RemoteRequestHeaderUID takes the user's uid from an authenticating proxy.
	RemoteRequestHeaderUID Gate = "RemoteRequestHeaderUID"
	// StructuredAuthenticationConfiguration reads the authentication configuration file.
	StructuredAuthenticationConfiguration Gate = "StructuredAuthenticationConfiguration"
	// CRDValidationRatcheting tolerates invalid parts of a custom resource that an update does not
	// change.
	CRDValidationRatcheting Gate = "CRDValidationRatcheting"
	// CustomResourceFieldSelectors selects custom resources by the fields that their definition
	// lists.
	CustomResourceFieldSelectors Gate = "CustomResourceFieldSelectors"
	// LoadBalancerIPMode keeps the ipMode field in the status of services.
	LoadBalancerIPMode Gate = "LoadBalancerIPMode"
	// StrictCostEnforcementForVAP and StrictCostEnforcementForWebhooks count the full cost of
	// library functions in validating admission policies and in match conditions of webhooks.
	StrictCostEnforcementForVAP      Gate = "StrictCostEnforcementForVAP"
	StrictCostEnforcementForWebhooks Gate = "StrictCostEnforcementForWebhooks"
	// WatchList lets watches start with the current state (sendInitialEvents).
	WatchList Gate = "WatchList"
)

// Names that stand for all gates of a stage.
const (
	allAlpha Gate = "AllAlpha"
	allBeta  Gate = "AllBeta"
)

// component is the name under which Kubernetes groups its gates. It may precede a gate's name, as in
// kube:WatchList=true.
const component = "kube"

// Stage is the stage of a gate.
type Stage string

// Stages, as the metric names them.
const (
	Alpha      Stage = "ALPHA"
	Beta       Stage = "BETA"
	GA         Stage = ""
	Deprecated Stage = "DEPRECATED"
)

// Spec describes a gate in one version of Kubernetes. A locked gate keeps its default.
type Spec struct {
	Default bool
	Stage   Stage
	Locked  bool
}

// Gates holds the current values of all gates. The zero value is not usable.
type Gates struct {
	specs map[Gate]Spec
	// set holds the values given by name, stages those given for all gates of a stage.
	set    map[Gate]bool
	stages map[Stage]bool
	// minor is the minor version of Kubernetes 1 that specs describes.
	minor int
}

// New returns all gates at their defaults.
func New() *Gates {
	return &Gates{specs: gates133(), set: map[Gate]bool{}, stages: map[Stage]bool{}, minor: version.MinorNumber}
}

// Enabled reports whether a feature is on. A gate that is set by name takes precedence over
// AllAlpha and AllBeta, in any order of the flags. An unknown gate is off.
func (g *Gates) Enabled(name Gate) bool {
	if enabled, ok := g.set[name]; ok {
		return enabled
	}
	spec, ok := g.specs[name]
	if !ok {
		return false
	}
	if enabled, ok := g.stages[spec.Stage]; ok && !spec.Locked {
		return enabled
	}
	return spec.Default
}

// Set implements pflag.Value. It parses "A=true,kube:B=false"; AllAlpha and AllBeta stand for all
// gates of a stage. It may be called more than once; the last value applies. Validate checks
// whether the emulated version allows the values.
func (g *Gates) Set(s string) error {
	for pair := range strings.SplitSeq(s, ",") {
		pair = strings.TrimSpace(pair)
		if pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		if setting, gateName, found := strings.Cut(name, ":"); found {
			if setting != component {
				return fmt.Errorf("component not registered: %s", setting)
			}
			name = gateName
		}
		if !ok {
			return fmt.Errorf("missing bool value for %s", name)
		}
		value = strings.TrimSpace(value)
		enabled, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("invalid value of %s=%s, err: %w", name, value, errors.Unwrap(err))
		}
		if err := g.setOne(Gate(name), enabled); err != nil {
			return err
		}
	}
	return nil
}

// setOne sets one gate, or all gates of a stage.
func (g *Gates) setOne(name Gate, enabled bool) error {
	switch name {
	case allAlpha:
		g.stages[Alpha] = enabled
		return nil
	case allBeta:
		g.stages[Beta] = enabled
		return nil
	}
	if _, ok := g.specs[name]; !ok {
		return fmt.Errorf("unrecognized feature gate: %s", name)
	}
	g.set[name] = enabled
	return nil
}

// String implements pflag.Value. It returns the values that were set, ordered by name.
func (g *Gates) String() string {
	var out []string
	for stage, name := range map[Stage]Gate{Alpha: allAlpha, Beta: allBeta} {
		if enabled, ok := g.stages[stage]; ok {
			out = append(out, fmt.Sprintf("%s=%t", name, enabled))
		}
	}
	for name, enabled := range g.set {
		out = append(out, fmt.Sprintf("%s=%t", name, enabled))
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

// Type implements pflag.Value.
func (g *Gates) Type() string { return "colonSeparatedMultimapStringString" }

// Warn logs the set gates that will be removed.
func (g *Gates) Warn(log *slog.Logger) {
	for _, name := range slices.Sorted(maps.Keys(g.set)) {
		switch g.specs[name].Stage {
		case GA:
			log.Warn("feature gate of a generally available feature is set; it will be removed in a future release",
				"gate", name, "value", g.set[name])
		case Deprecated:
			log.Warn("deprecated feature gate is set; it will be removed in a future release", "gate", name, "value", g.set[name])
		}
	}
}

// Register registers the metric kubernetes_feature_enabled, which has each gate and its stage.
func (g *Gates) Register(registerer prometheus.Registerer) error {
	enabled := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubernetes_feature_enabled",
		Help: "[BETA] Whether a feature gate is on (1) or off (0), by its name and stage.",
	}, []string{"name", "stage"})
	record := func(name Gate, stage Stage, on bool) {
		value := 0.0
		if on {
			value = 1
		}
		enabled.WithLabelValues(string(name), string(stage)).Set(value)
	}
	for name, spec := range g.specs {
		if spec.Stage != absent { // Emulate sets absent for gates that the version lacks
			record(name, spec.Stage, g.Enabled(name))
		}
	}
	record(allAlpha, Alpha, g.stages[Alpha])
	record(allBeta, Beta, g.stages[Beta])
	return registerer.Register(enabled)
}

// Help returns the text for --help. It lists the gates that may be changed.
func Help() string {
	lines := []string{
		component + ":AllAlpha=true|false (ALPHA - default=false)",
		component + ":AllBeta=true|false (BETA - default=false)",
	}
	for name, spec := range gates133() {
		if spec.Stage == Alpha || spec.Stage == Beta {
			lines = append(lines, fmt.Sprintf("%s:%s=true|false (%s - default=%t)", component, name, spec.Stage, spec.Default))
		}
	}
	slices.Sort(lines)
	return "Comma-separated list of component:key=value pairs that turn features on or off; without a component, \"" +
		component + "\" is meant. May be given more than once. Options are:\n" + strings.Join(lines, "\n")
}
