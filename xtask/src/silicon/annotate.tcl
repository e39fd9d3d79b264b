# Flip-flops are named by the bits they hold; their outputs switch as those did
# in the simulation. OpenSTA 2.0.17 gives a flip-flop's output the activity of
# its data pin, and takes none at the output itself.
set_power_activity -input -activity 0.1
set file [open RATES]
while {[gets $file line] >= 0} { lassign $line path bit rate; set rates($path/$bit) $rate }
close $file
set known 0
set all 0
foreach cell [get_cells -hierarchical *DFF*] {
  incr all
  set name [string map {\\ {}} [get_full_name $cell]]
  regsub {\$_.*$} $name {} name
  set bit 0
  regexp {^(.*)\[([0-9]+)\]$} $name whole name bit
  set name [string map {. /} $name]
  if {[info exists rates($name/$bit)]} {
    incr known
    foreach pin [get_pins -of_objects $cell] {
      if {[string match */D [get_full_name $pin]]} { sta::set_power_pin_activity $pin $rates($name/$bit) 0.5 }
    }
  }
}
foreach cell [get_cells -hierarchical {MEMORIES}] {
  foreach pin [get_pins -of_objects $cell] {
    set name [string map {\\ {}} [get_full_name $pin]]
    if {[regexp {^(.*/rdata)\[([0-9]+)\]$} $name whole name bit]} {
      set name [string map {. /} $name]
      if {[info exists rates($name/$bit)]} { sta::set_power_pin_activity $pin $rates($name/$bit) 0.5 }
    }
  }
}
puts "annotated [expr double($known) / $all]"
report_power
# Watts of each module without those below it: a cell counts for the module that
# its path, less its own name, is an instance of.
set corner [sta::cmd_corner]
set modules() TOP
foreach cell [get_cells -hierarchical *] {
  set path [get_full_name $cell]
  set reference [get_property $cell ref_name]
  if {![string match *_ASAP7_75t_R $reference]} { set modules($path) $reference; continue }
  set at [string last / $path]
  set parent [expr {$at < 0 ? "" : [string range $path 0 [expr {$at - 1}]]}]
  lassign [sta::instance_power $cell $corner] internal switching leakage total
  if {![info exists sums($parent)]} { set sums($parent) 0.0 }
  set sums($parent) [expr {$sums($parent) + $total}]
}
foreach {parent total} [array get sums] {
  if {![info exists modules($parent)]} continue
  set module $modules($parent)
  if {![info exists watts($module)]} { set watts($module) 0.0 }
  set watts($module) [expr {$watts($module) + $total}]
}
foreach {module total} [array get watts] { puts "module $module $total" }
