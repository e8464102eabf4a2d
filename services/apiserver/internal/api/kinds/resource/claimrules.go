package resource

import (
	"strings"

	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	content "k8s.io/apimachinery/pkg/util/validation"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry/validate"
)

// requestNames holds the names that refer to a claim's requests: "request" and
// "request/alternative".
type requestNames validate.Set[string]

func requestNamesOf(c *resourcev1beta2.DeviceClaim) requestNames {
	names := requestNames{}
	for i := range c.Requests {
		r := &c.Requests[i]
		names[r.Name] = struct{}{}
		for j := range r.FirstAvailable {
			names[r.Name+"/"+r.FirstAvailable[j].Name] = struct{}{}
		}
	}
	return names
}

// claimRules validates the spec of a claim. stored reports whether it is already stored.
func (x compiler) claimRules(at validate.At, s *resourcev1beta2.ResourceClaimSpec, stored bool) {
	x = x.forObject()
	devices, c := at.Child("devices"), &s.Devices
	names := requestNamesOf(c)
	validate.Each(devices, "requests", c.Requests, func(at validate.At, r *resourcev1beta2.DeviceRequest) { x.requestRules(at, r, stored) })
	validate.MaxItems(devices, "requests", c.Requests, resourcev1beta2.DeviceRequestsMaxSize)
	uniqueIn(devices, "requests", "name", c.Requests, func(r *resourcev1beta2.DeviceRequest) string { return r.Name })
	validate.Each(devices, "constraints", c.Constraints, func(at validate.At, c *resourcev1beta2.DeviceConstraint) {
		names.rules(at, c.Requests)
		if c.MatchAttribute == nil {
			at.Required("matchAttribute", "")
			return
		}
		name := string(*c.MatchAttribute)
		qualifiedRules(at.Child("matchAttribute"), name)
		if name != "" && !strings.Contains(name, "/") {
			at.Invalid("matchAttribute", name, "must include a domain")
		}
	})
	validate.MaxItems(devices, "constraints", c.Constraints, resourcev1beta2.DeviceConstraintsMaxSize)
	validate.Each(devices, "config", c.Config, func(at validate.At, c *resourcev1beta2.DeviceClaimConfiguration) {
		names.rules(at, c.Requests)
		configRules(at, &c.DeviceConfiguration, stored)
	})
	validate.MaxItems(devices, "config", c.Config, resourcev1beta2.DeviceConfigMaxSize)
}

// rules requires distinct references to requests.
func (n requestNames) rules(at validate.At, refs []string) {
	validate.Each(at, "requests", refs, func(at validate.At, ref *string) { n.ref(at, "", *ref) })
	validate.MaxItems(at, "requests", refs, resourcev1beta2.DeviceRequestsMaxSize)
	uniqueIn(at, "requests", "", refs, func(ref *string) string { return *ref })
}

func (n requestNames) ref(at validate.At, name, ref string) {
	const wrong = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
	parts := strings.Split(ref, "/")
	if len(parts) > 2 {
		at.Invalid(name, ref, wrong)
		return
	}
	for _, part := range parts {
		at.Text(name, part, validate.DNSLabel)
	}
	if _, ok := n[ref]; !ok {
		at.Invalid(name, ref, wrong)
	}
}

func (x compiler) requestRules(at validate.At, r *resourcev1beta2.DeviceRequest, stored bool) {
	const choice = "exactly one of `exactly` or `firstAvailable` is required"
	at.Text("name", r.Name, validate.DNSLabel)
	switch some := len(r.FirstAvailable) > 0; {
	case r.Exactly == nil && !some:
		at.Required("", choice)
	case r.Exactly != nil && some:
		at.Invalid("", nil, choice+", but multiple fields are set")
	case some:
		validate.Each(at, "firstAvailable", r.FirstAvailable, func(at validate.At, r *resourcev1beta2.DeviceSubRequest) { x.alternativeRules(at, r, stored) })
		validate.MaxItems(at, "firstAvailable", r.FirstAvailable, resourcev1beta2.FirstAvailableDeviceRequestMaxSize)
		uniqueIn(at, "firstAvailable", "name", r.FirstAvailable, func(r *resourcev1beta2.DeviceSubRequest) string { return r.Name })
	default:
		exactly, e := at.Child("exactly"), r.Exactly
		exactly.RequiredText("deviceClassName", e.DeviceClassName, validate.DNSSubdomain)
		x.selectorRules(exactly, e.Selectors, stored)
		modeRules(exactly, e.AllocationMode, e.Count)
		validate.Each(exactly, "tolerations", e.Tolerations, tolerationRules)
	}
}

func (x compiler) alternativeRules(at validate.At, r *resourcev1beta2.DeviceSubRequest, stored bool) {
	at.Text("name", r.Name, validate.DNSLabel)
	at.RequiredText("deviceClassName", r.DeviceClassName, validate.DNSSubdomain)
	x.selectorRules(at, r.Selectors, stored)
	modeRules(at, r.AllocationMode, r.Count)
	validate.Each(at, "tolerations", r.Tolerations, tolerationRules)
}

// claimStatusRules validates the allocation and the consumers of a claim.
func claimStatusRules(at validate.At, c, old *resourcev1beta2.ResourceClaim) {
	status, s := at.Child("status"), &c.Status
	names := requestNamesOf(&c.Spec.Devices)
	validate.Each(status, "reservedFor", s.ReservedFor, func(at validate.At, r *resourcev1beta2.ResourceClaimConsumerReference) {
		at.Present("resource", r.Resource != "")
		at.Present("name", r.Name != "")
		at.Present("uid", r.UID != "")
	})
	validate.MaxItems(status, "reservedFor", s.ReservedFor, resourcev1beta2.ResourceClaimReservedForMaxSize)
	uniqueIn(status, "reservedFor", "uid", s.ReservedFor, func(r *resourcev1beta2.ResourceClaimConsumerReference) string { return string(r.UID) })
	deviceStatusRules(status, s)
	reservedRules(status, c, old)
	switch {
	case s.Allocation == nil:
	case old.Status.Allocation != nil:
		status.Immutable("allocation", s.Allocation, old.Status.Allocation)
	default:
		allocationRules(status.Child("allocation"), s.Allocation, names)
	}
}

// reservedRules rejects new consumers of a claim that is not allocated, or is being deleted.
func reservedRules(status validate.At, c, old *resourcev1beta2.ResourceClaim) {
	now := c.Status.ReservedFor
	if len(now) == 0 {
		return
	}
	if c.Status.Allocation == nil {
		status.Forbidden("reservedFor", "may not be specified when `allocated` is not set")
		return
	}
	if c.DeletionTimestamp == nil {
		return
	}
	before := validate.SetOf(old.Status.ReservedFor, func(r *resourcev1beta2.ResourceClaimConsumerReference) resourcev1beta2.ResourceClaimConsumerReference {
		return *r
	})
	for i := range now {
		if !before.Has(now[i]) {
			status.Forbidden("reservedFor", "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set")
			return
		}
	}
}

// deviceID identifies a device. Messages contain its parts.
type deviceID struct{ driver, pool, device string }

func (d deviceID) String() string { return d.driver + "/" + d.pool + "/" + d.device }

func deviceStatusRules(status validate.At, s *resourcev1beta2.ResourceClaimStatus) {
	allocated := validate.Set[deviceID]{}
	if s.Allocation != nil {
		allocated = validate.SetOf(s.Allocation.Devices.Results, func(r *resourcev1beta2.DeviceRequestAllocationResult) deviceID {
			return deviceID{r.Driver, r.Pool, r.Device}
		})
	}
	validate.Each(status, "devices", s.Devices, func(at validate.At, d *resourcev1beta2.AllocatedDeviceStatus) {
		deviceRules(at, d.Driver, d.Pool, d.Device)
		if id := (deviceID{d.Driver, d.Pool, d.Device}); !allocated.Has(id) {
			at.Invalid("", id.String(), "must be an allocated device in the claim")
		}
		validate.MaxItems(at, "conditions", d.Conditions, resourcev1beta2.AllocatedDeviceStatusMaxConditions)
		at.Conditions("conditions", d.Conditions)
		if d.Data != nil && len(d.Data.Raw) > 0 {
			jsonRules(at, "data", *d.Data, resourcev1beta2.AllocatedDeviceStatusDataMaxLength)
		}
		validate.Optional(at, "networkData", d.NetworkData, networkRules)
	})
	uniqueIn(status, "devices", "deviceID", s.Devices, func(d *resourcev1beta2.AllocatedDeviceStatus) string {
		return deviceID{d.Driver, d.Pool, d.Device}.String()
	})
}

func networkRules(at validate.At, n *resourcev1beta2.NetworkDeviceData) {
	at.MaxBytes("interfaceName", n.InterfaceName, resourcev1beta2.NetworkDeviceDataInterfaceNameMaxLength)
	at.MaxBytes("hardwareAddress", n.HardwareAddress, resourcev1beta2.NetworkDeviceDataHardwareAddressMaxLength)
	validate.Each(at, "ips", n.IPs, func(at validate.At, ip *string) { at.Add(content.IsValidInterfaceAddress(at.Path(), *ip)...) })
	validate.MaxItems(at, "ips", n.IPs, resourcev1beta2.NetworkDeviceDataMaxIPs)
	uniqueIn(at, "ips", "", n.IPs, func(ip *string) string { return *ip })
}

func deviceRules(at validate.At, driver, pool, device string) {
	podspec.CSIDriverName(at, "driver", driver)
	poolNameRules(at, "pool", pool)
	at.Text("device", device, validate.DNSLabel)
}

func allocationRules(at validate.At, a *resourcev1beta2.AllocationResult, names requestNames) {
	devices := at.Child("devices")
	validate.Each(devices, "results", a.Devices.Results, func(at validate.At, r *resourcev1beta2.DeviceRequestAllocationResult) {
		names.ref(at, "request", r.Request)
		deviceRules(at, r.Driver, r.Pool, r.Device)
	})
	validate.MaxItems(devices, "results", a.Devices.Results, resourcev1beta2.AllocationResultsMaxSize)
	validate.Each(devices, "config", a.Devices.Config, func(at validate.At, c *resourcev1beta2.DeviceAllocationConfiguration) {
		validate.RequiredOneOf(at, "source", c.Source, resourcev1beta2.AllocationConfigSourceClaim, resourcev1beta2.AllocationConfigSourceClass)
		names.rules(at, c.Requests)
		configRules(at, &c.DeviceConfiguration, false)
	})
	validate.MaxItems(devices, "config", a.Devices.Config, 2*resourcev1beta2.DeviceConfigMaxSize)
	if a.NodeSelector != nil {
		podspec.NodeSelectorRules(at.Child("nodeSelector"), a.NodeSelector, false)
	}
}
