// Package fallback holds the configuration that is baked into the image: the device's profile and the state that it is kept
// in when no slot is good. Both are embedded; a board overrides them with files under /usr/share/holdfast.
package fallback
