// Package volume has the rules of specifications of volumes that persist, which
// persistent volumes and attachments have. Sources that pods have as well have
// their rules in podspec. It keeps no state.
package volume
