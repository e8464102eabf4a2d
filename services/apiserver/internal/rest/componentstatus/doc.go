// Package componentstatus checks the components of the control plane for the resource
// componentstatuses. Nothing of it is stored: a request checks the components that it reads.
package componentstatus
