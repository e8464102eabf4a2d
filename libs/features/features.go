// Package features is a service's set of feature gates: named switches whose
// stage says what they are by default and whether they may be changed
// (specification: "Feature-gate lifecycle"), as they are in the version of
// Kubernetes that is emulated.
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

// Gate names a feature.
type Gate string

// The gates that services of the suite consult.
const (
	// AllowUnsafeMalformedObjectDeletion heeds the option of deletions for objects
	// that cannot be read.
	AllowUnsafeMalformedObjectDeletion Gate = "AllowUnsafeMalformedObjectDeletion"
	// StorageVersionAPI, with APIServerIdentity, has replicas say what they store.
	StorageVersionAPI Gate = "StorageVersionAPI"
	// StorageVersionMigrator serves StorageVersionMigration objects.
	StorageVersionMigrator Gate = "StorageVersionMigrator"
	APIServerIdentity      Gate = "APIServerIdentity"
	// WatchCacheInitializationPostStartHook has health checks wait for the watch cache.
	WatchCacheInitializationPostStartHook Gate = "WatchCacheInitializationPostStartHook"
	// UnknownVersionInteroperabilityProxy, with both, has replicas ask each other for what
	// they do not serve.
	UnknownVersionInteroperabilityProxy Gate = "UnknownVersionInteroperabilityProxy"
	// APIServerTracing lets --tracing-config-file make traces.
	APIServerTracing Gate = "APIServerTracing"
	// KMSv1 lets plugins of that version seal values.
	KMSv1 Gate = "KMSv1"
	// AllowServiceLBStatusOnNonLB lets services of any type have the status of a
	// load balancer.
	AllowServiceLBStatusOnNonLB Gate = "AllowServiceLBStatusOnNonLB"
	// ClusterTrustBundleProjection, ContainerStopSignals,
	// DynamicResourceAllocation, ImageVolume and PodLevelResources keep the
	// fields of pods of these names; ResourceHealthStatus,
	// InPlacePodVerticalScalingAllocatedStatus and PodObservedGenerationTracking
	// those of their status.
	ClusterTrustBundleProjection             Gate = "ClusterTrustBundleProjection"
	ContainerStopSignals                     Gate = "ContainerStopSignals"
	DynamicResourceAllocation                Gate = "DynamicResourceAllocation"
	ImageVolume                              Gate = "ImageVolume"
	PodLevelResources                        Gate = "PodLevelResources"
	ResourceHealthStatus                     Gate = "ResourceHealthStatus"
	InPlacePodVerticalScalingAllocatedStatus Gate = "InPlacePodVerticalScalingAllocatedStatus"
	PodObservedGenerationTracking            Gate = "PodObservedGenerationTracking"
	// DeploymentReplicaSetTerminatingReplicas keeps the number of terminating replicas in
	// the status of Deployments and ReplicaSets.
	DeploymentReplicaSetTerminatingReplicas Gate = "DeploymentReplicaSetTerminatingReplicas"
	// PodTopologyLabelsAdmission tells pods where their node is.
	PodTopologyLabelsAdmission Gate = "PodTopologyLabelsAdmission"
	// CoordinatedLeaderElection lets the server choose who leads.
	CoordinatedLeaderElection Gate = "CoordinatedLeaderElection"
	// InPlacePodVerticalScaling lets the resources of a pod's containers change.
	InPlacePodVerticalScaling Gate = "InPlacePodVerticalScaling"
	// HPAConfigurableTolerance and HPAScaleToZero keep a field of autoscalers and
	// let them have no replicas. PreferSameTrafficDistribution keeps hints of
	// endpoint slices, and admits two more values for services.
	HPAConfigurableTolerance      Gate = "HPAConfigurableTolerance"
	HPAScaleToZero                Gate = "HPAScaleToZero"
	PreferSameTrafficDistribution Gate = "PreferSameTrafficDistribution"
	// MaxUnavailableStatefulSet keeps the field of stateful sets.
	MaxUnavailableStatefulSet Gate = "MaxUnavailableStatefulSet"
	// MutatingAdmissionPolicy has the kinds of that name and the plugin.
	MutatingAdmissionPolicy Gate = "MutatingAdmissionPolicy"
	// PodLifecycleSleepAction keeps hooks that sleep,
	// PodLifecycleSleepActionAllowZero lets them sleep no time at all.
	PodLifecycleSleepAction          Gate = "PodLifecycleSleepAction"
	PodLifecycleSleepActionAllowZero Gate = "PodLifecycleSleepActionAllowZero"
	// RelaxedDNSSearchValidation and RelaxedEnvironmentVariableValidation allow
	// more names for both.
	RelaxedDNSSearchValidation           Gate = "RelaxedDNSSearchValidation"
	RelaxedEnvironmentVariableValidation Gate = "RelaxedEnvironmentVariableValidation"
	// SELinuxMount lets volumes be mounted with a label.
	SELinuxMount Gate = "SELinuxMount"
	// AllowInsecureKubeletCertificateSigningRequests lets nodes request
	// certificates for other nodes.
	AllowInsecureKubeletCertificateSigningRequests Gate = "AllowInsecureKubeletCertificateSigningRequests"
	// AuthorizeNodeWithSelectors lets nodes read what is theirs alone.
	AuthorizeNodeWithSelectors Gate = "AuthorizeNodeWithSelectors"
	// AuthorizeWithSelectors tells authorizers what a request limits itself to.
	AuthorizeWithSelectors Gate = "AuthorizeWithSelectors"
	// AllowParsingUserUIDFromCertAuth takes the user's uid from a client
	// certificate that has one.
	AllowParsingUserUIDFromCertAuth Gate = "AllowParsingUserUIDFromCertAuth"
	// AnonymousAuthConfigurableEndpoints lets the authentication configuration say
	// which paths may be asked for anonymously.
	AnonymousAuthConfigurableEndpoints Gate = "AnonymousAuthConfigurableEndpoints"
	// OpenAPIEnums tells in documents which values fields can have.
	OpenAPIEnums Gate = "OpenAPIEnums"
	// CBORServingAndStorage serves and accepts application/cbor.
	CBORServingAndStorage Gate = "CBORServingAndStorage"
	// CrossNamespaceVolumeDataSource and VolumeAttributesClass keep fields of claims
	// and volumes.
	CrossNamespaceVolumeDataSource Gate = "CrossNamespaceVolumeDataSource"
	VolumeAttributesClass          Gate = "VolumeAttributesClass"
	// MutableCSINodeAllocatableCount keeps how often a driver is asked what fits a
	// node, and lets that change.
	MutableCSINodeAllocatableCount Gate = "MutableCSINodeAllocatableCount"
	// DRAPrioritizedList, DRAAdminAccess, DRADeviceTaints and DRAPartitionableDevices
	// keep fields of claims and slices.
	DRAPrioritizedList      Gate = "DRAPrioritizedList"
	DRAAdminAccess          Gate = "DRAAdminAccess"
	DRADeviceTaints         Gate = "DRADeviceTaints"
	DRAPartitionableDevices Gate = "DRAPartitionableDevices"
	// DRAResourceClaimDeviceStatus keeps what drivers tell of a claim's devices.
	DRAResourceClaimDeviceStatus Gate = "DRAResourceClaimDeviceStatus"
	// MultiCIDRServiceAllocator gives services addresses of ServiceCIDR objects. Without
	// it the addresses are those of --service-cluster-ip-range.
	MultiCIDRServiceAllocator Gate = "MultiCIDRServiceAllocator"
	// DisableAllocatorDualWrite keeps addresses of services as IPAddress objects alone.
	DisableAllocatorDualWrite Gate = "DisableAllocatorDualWrite"
	// StrictIPCIDRValidation refuses odd writings of addresses and ranges.
	StrictIPCIDRValidation Gate = "StrictIPCIDRValidation"
	// ClusterTrustBundle serves the kind and lets nodes read it.
	ClusterTrustBundle Gate = "ClusterTrustBundle"
	// KubeletServiceAccountTokenForCredentialProviders lets nodes read the service
	// accounts of their pods.
	KubeletServiceAccountTokenForCredentialProviders Gate = "KubeletServiceAccountTokenForCredentialProviders"
	// DeclarativeValidation runs declared rules beside the written ones.
	DeclarativeValidation Gate = "DeclarativeValidation"
	// DeclarativeValidationTakeover makes the declared rules decide.
	DeclarativeValidationTakeover Gate = "DeclarativeValidationTakeover"
	// PodLogsQuerySplitStreams lets clients read one of a log's streams.
	PodLogsQuerySplitStreams Gate = "PodLogsQuerySplitStreams"
	// PortForwardWebsockets forwards ports over WebSocket.
	PortForwardWebsockets Gate = "PortForwardWebsockets"
	// TranslateStreamCloseWebsocketRequests serves commands over WebSocket
	// channels and has the kubelet run them over SPDY.
	TranslateStreamCloseWebsocketRequests Gate = "TranslateStreamCloseWebsocketRequests"
	// ServiceAccountNodeAudienceRestriction limits the tokens that nodes ask for to
	// audiences that their pods mount.
	ServiceAccountNodeAudienceRestriction Gate = "ServiceAccountNodeAudienceRestriction"
	// ExternalServiceAccountTokenSigner allows an external signer of service account tokens.
	ExternalServiceAccountTokenSigner Gate = "ExternalServiceAccountTokenSigner"
	// RemoteRequestHeaderUID takes the user's uid from an authenticating proxy.
	RemoteRequestHeaderUID Gate = "RemoteRequestHeaderUID"
	// StructuredAuthenticationConfiguration reads the authentication configuration
	// file.
	StructuredAuthenticationConfiguration Gate = "StructuredAuthenticationConfiguration"
	// CRDValidationRatcheting tolerates what is wrong in a custom resource and
	// does not change.
	CRDValidationRatcheting Gate = "CRDValidationRatcheting"
	// CustomResourceFieldSelectors selects custom resources by the fields that
	// their definition names.
	CustomResourceFieldSelectors Gate = "CustomResourceFieldSelectors"
	// LoadBalancerIPMode keeps the field of the status of services.
	LoadBalancerIPMode Gate = "LoadBalancerIPMode"
	// StrictCostEnforcementForVAP and StrictCostEnforcementForWebhooks count the
	// full cost of library functions in validating admission policies and in
	// match conditions of webhooks.
	StrictCostEnforcementForVAP      Gate = "StrictCostEnforcementForVAP"
	StrictCostEnforcementForWebhooks Gate = "StrictCostEnforcementForWebhooks"
	// WatchList lets watches begin with the present state (sendInitialEvents).
	WatchList Gate = "WatchList"
)

// The names that stand for all gates of a stage.
const (
	allAlpha Gate = "AllAlpha"
	allBeta  Gate = "AllBeta"
)

// component is the part of the cluster whose gates these are; it may stand
// before a gate's name, as in kube:WatchList=true.
const component = "kube"

// Stage of a gate.
type Stage string

// The stages, as the metric names them.
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

// Gates are the switches as they are set. Its zero value is not usable.
type Gates struct {
	specs map[Gate]Spec
	// set holds what was given; stages what was given for all of a stage.
	set    map[Gate]bool
	stages map[Stage]bool
	// minor is the version of Kubernetes 1 that specs are of.
	minor int
}

// New returns all gates at their defaults.
func New() *Gates {
	return &Gates{specs: known(), set: map[Gate]bool{}, stages: map[Stage]bool{}, minor: version.MinorNumber}
}

// Enabled tells whether a feature is on. A gate given by name outweighs
// AllAlpha and AllBeta, in whatever order they were given. A gate that is not
// known is off.
func (g *Gates) Enabled(name Gate) bool {
	if on, ok := g.set[name]; ok {
		return on
	}
	spec, ok := g.specs[name]
	if !ok {
		return false
	}
	if on, ok := g.stages[spec.Stage]; ok && !spec.Locked {
		return on
	}
	return spec.Default
}

// Set implements pflag.Value: "A=true,kube:B=false", with AllAlpha and AllBeta
// for all of a stage. It may be called again; the last value counts. What may not be
// given in the version that is emulated is for Validate.
func (g *Gates) Set(s string) error {
	for pair := range strings.SplitSeq(s, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		if part, rest, found := strings.Cut(name, ":"); found {
			if part != component {
				return fmt.Errorf("component not registered: %s", part)
			}
			name = rest
		}
		if !ok {
			return fmt.Errorf("missing bool value for %s", name)
		}
		value = strings.TrimSpace(value)
		on, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("invalid value of %s=%s, err: %w", name, value, errors.Unwrap(err))
		}
		if err := g.one(Gate(name), on); err != nil {
			return err
		}
	}
	return nil
}

func (g *Gates) one(name Gate, on bool) error {
	switch name {
	case allAlpha:
		g.stages[Alpha] = on
		return nil
	case allBeta:
		g.stages[Beta] = on
		return nil
	}
	if _, ok := g.specs[name]; !ok {
		return fmt.Errorf("unrecognized feature gate: %s", name)
	}
	g.set[name] = on
	return nil
}

// String implements pflag.Value: what was given, in the order of the names.
func (g *Gates) String() string {
	var out []string
	for stage, name := range map[Stage]Gate{Alpha: allAlpha, Beta: allBeta} {
		if on, ok := g.stages[stage]; ok {
			out = append(out, fmt.Sprintf("%s=%t", name, on))
		}
	}
	for name, on := range g.set {
		out = append(out, fmt.Sprintf("%s=%t", name, on))
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

// Type implements pflag.Value.
func (g *Gates) Type() string { return "colonSeparatedMultimapStringString" }

// Warn logs the gates that were given although they are about to go.
func (g *Gates) Warn(log *slog.Logger) {
	for _, name := range slices.Sorted(maps.Keys(g.set)) {
		switch g.specs[name].Stage {
		case GA:
			log.Warn("feature gate is given although its feature is generally available; it will be removed in a future release", "gate", name, "value", g.set[name])
		case Deprecated:
			log.Warn("deprecated feature gate is given; it will be removed in a future release", "gate", name, "value", g.set[name])
		}
	}
}

// Register adds kubernetes_feature_enabled, which has each gate and its stage.
func (g *Gates) Register(r prometheus.Registerer) error {
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
		if spec.Stage != absent {
			record(name, spec.Stage, g.Enabled(name))
		}
	}
	record(allAlpha, Alpha, g.stages[Alpha])
	record(allBeta, Beta, g.stages[Beta])
	return r.Register(enabled)
}

// Help lists the gates that may be changed, for --help.
func Help() string {
	lines := []string{
		component + ":AllAlpha=true|false (ALPHA - default=false)",
		component + ":AllBeta=true|false (BETA - default=false)",
	}
	for name, spec := range known() {
		if spec.Stage == Alpha || spec.Stage == Beta {
			lines = append(lines, fmt.Sprintf("%s:%s=true|false (%s - default=%t)", component, name, spec.Stage, spec.Default))
		}
	}
	slices.Sort(lines)
	return "Comma-separated list of component:key=value pairs that turn features on or off; without a component, \"" + component + "\" is meant. May be given more than once. Options are:\n" + strings.Join(lines, "\n")
}
