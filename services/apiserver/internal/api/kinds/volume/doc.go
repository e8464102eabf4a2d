// Package volume validates the specifications of persistent volumes, which persistent volumes and
// attachments have. The rules of sources that pods have as well are in podspec. It has no state.
package volume
