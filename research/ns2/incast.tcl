# Workers that respond to one aggregator through the port of a switch, in ns-2: the network of the papers.
#
#   ns incast.tcl NAME=VALUE ...
#
# The defaults below are those of Podlesny and Williamson: fresh connections, an initial window of 1. Prints one line of
# NAME=VALUE for each block, and then one for the whole run. Times are in ms, and goodput in Mbit/s of payload.
array set o {
  workers 5          sru 10000           payload 1000      header 40           hosts 0
  buffer 32000       buffer_packets 0    rate 1000Mb       delay 0.025ms
  tcp Newreno        initial_window 1    max_window 10000  rto_min 0.2    tick 0.01   duplicate_acks 3
  limited_transmit 1 overhead 0          delayed_ack 0       random_rto 0
  slow_start 1
  initial_rto 3.0
  start all          slot 0              batches 1         at_once 1      jitter 20e-6
  blocks 1           seconds 1e5         seed 1
  trace {}           variables {nrexmit_ dupacks_}     windows {}
  samples {}         sample_every 0.005
}
foreach argument $argv {
  if {![regexp {^([^=]+)=(.*)$} $argument - name value] || ![info exists o($name)]} {
    puts stderr "incast.tcl: $argument is not one of: [lsort [array names o]]"
    exit 2
  }
  set o($name) $value
}

set ns [new Simulator]
set rng [new RNG]
for {set i 0} {$i < $o(seed)} {incr i} { $rng next-substream }
set late [new RandomVariable/Uniform]
$late use-rng $rng
$late set min_ 0
$late set max_ $o(jitter)

# A packet of ns-2 has packetSize_ bytes of payload and 40 bytes of headers in every size that matters.
Agent/TCP set packetSize_ $o(payload)
Agent/TCP set tcpip_base_hdr_size_ $o(header)
Agent/TCP set windowInit_ $o(initial_window)
Agent/TCP set window_ $o(max_window)
Agent/TCP set maxcwnd_ 0
# The window from which slow start is limited (RFC 3742). At 1 it never doubles: one packet a round trip at the start, and half of one
# after a timeout.
Agent/TCP set max_ssthresh_ [expr {$o(slow_start) ? 0 : 1}]
Agent/TCP set minrto_ $o(rto_min)
Agent/TCP set rtxcur_init_ $o(initial_rto)
Agent/TCP set tcpTick_ $o(tick)
Agent/TCP set overhead_ $o(overhead)
Agent/TCP set numdupacks_ $o(duplicate_acks)
Agent/TCP set singledup_ $o(limited_transmit)
# The sink's maximum wait for a second packet before it acknowledges the first.
Agent/TCPSink/DelAck set interval_ $o(delayed_ack)
Queue set limit_ 10000

$ns rtproto Manual
set switch [$ns node]
set aggregator [$ns node]
$ns duplex-link $switch $aggregator $o(rate) $o(delay) DropTail
set port [[$ns link $switch $aggregator] queue]
if {$o(buffer_packets) > 0} {
  # ns-2 drops the packet that would bring the queue to limit_ packets.
  $port set limit_ [expr {$o(buffer_packets) + 1}]
} else {
  $port set queue_in_bytes_ true
  $port set mean_pktsize_ 1
  $port set limit_ [expr {$o(buffer) + 1}]
}
set monitor [$ns monitor-queue $switch $aggregator ""]
$switch add-route [$aggregator id] [[$ns link $switch $aggregator] head]

# The time of an acknowledgement from the aggregator to a worker: two links that are never busy with acknowledgements.
set half_way [expr {2 * ($o(header) * 8 / [bw_parse $o(rate)] + [delay_parse $o(delay)])}]
set packets [expr {($o(sru) + $o(payload) - 1) / $o(payload)}]
set block 0
set block_start 0.0
set last_end 0.0
set carried 0
if {$o(trace) ne ""} { set trace [open $o(trace) w] }
if {$o(windows) ne ""} { set windows [open $o(windows) w] }

proc sum {variable} {
  global tcps
  set total 0
  foreach tcp $tcps { incr total [$tcp set $variable] }
  return $total
}

proc finish {} {
  global o block left monitor last_end half_way carried trace windows samples
  set seconds [expr {$last_end - $half_way}]
  set mbps [expr {$seconds > 0 ? 8e-6 * $carried / $seconds : 0}]
  puts [format "time_ms=%.6f goodput=%.4f blocks=%d left=%d drops=%d timeouts=%d resent=%d sent=%d" \
    [expr {$seconds * 1e3}] $mbps $block $left [$monitor set pdrops_] [sum nrexmit_] [sum nrexmitpack_] [sum ndatapack_]]
  foreach file {trace windows samples} { if {[info exists $file]} { close [set $file] } }
  exit 0
}

# The last acknowledgement has arrived. The last byte reached the aggregator half a round trip ago, and a request sent
# at that time arrives now. So the next block begins at once.
Agent/TCP instproc done {} {
  global ns o left last_end next
  incr left -1
  set last_end [$ns now]
  if {$left == 0} {
    end_block
  } elseif {$o(start) eq "window" && $next < $o(workers)} {
    ask_next
  }
}

proc end_block {} {
  global o ns block block_start last_end half_way carried left
  incr block
  incr carried [expr {$o(workers) * $o(sru)}]
  puts [format "block=%d time_ms=%.6f timeouts=%d" $block [expr {($last_end - $block_start - ($block == 1 ? $half_way : 0)) * 1e3}] \
    [sum nrexmit_]]
  if {$block == $o(blocks) || [$ns now] >= $o(seconds)} { finish }
  start_block
}

# An incomplete block counts with the time spent on it.
proc out_of_time {} {
  global ns last_end half_way
  set last_end [expr {[$ns now] + $half_way}]
  finish
}

# Writes the aggregator's view of the run so far: the acknowledged bytes, and the timeouts.
proc sample {} {
  global o ns tcps samples
  set packets 0
  foreach tcp $tcps { incr packets [expr {max(0, [$tcp set ack_])}] }
  puts $samples "[$ns now] [expr {$packets * $o(payload)}] [sum nrexmit_]"
  $ns at [expr {[$ns now] + $o(sample_every)}] sample
}

# Timeouts at random times: the minimum RTO is (1 + random_rto * U) * rto_min, drawn again after each timeout. ns-2's
# agents have no such setting, but their minimum RTO may change during a run, and their trace reports timeouts.
# Therefore the trace goes to a channel that ends in a procedure. An RTO that is larger by its estimate is not random.
proc draw_rto {tcp} {
  global o rto_draw
  $tcp set minrto_ [expr {$o(rto_min) * (1 + $o(random_rto) * [$rto_draw value])}]
}

proc timeout_channel {action channel args} {
  global tcp_of
  switch $action {
    initialize { return {initialize finalize watch write} }
    write {
      foreach line [split [string trim [lindex $args 0]] "\n"] { draw_rto $tcp_of([lindex $line 1]) }
      return [string length [lindex $args 0]]
    }
  }
}

if {$o(random_rto) > 0} {
  set rto_draw [new RandomVariable/Uniform]
  $rto_draw use-rng $rng
  $rto_draw set min_ 0
  $rto_draw set max_ 1
  set timeout_channel [chan create write timeout_channel]
  fconfigure $timeout_channel -buffering none
}

proc ask {i when} {
  global ns late tcps packets
  $ns at [expr {$when + [$late value]}] "[lindex $tcps $i] advanceby $packets"
}

proc ask_next {} {
  global ns next
  set i $next
  incr next
  ask $i [$ns now]
}

proc start_block {} {
  global o ns left next tcps block_start windows
  set block_start [$ns now]
  set left $o(workers)
  set next 0
  if {[info exists windows]} {
    set line {}
    foreach tcp $tcps { lappend line [$tcp set cwnd_] }
    puts $windows $line
  }
  switch $o(start) {
    all { for {set i 0} {$i < $o(workers)} {incr i} { ask $i $block_start } }
    slots {
      for {set i 0} {$i < $o(workers)} {incr i} { ask $i [expr {$block_start + $o(slot) * ($i % $o(batches))}] }
    }
    window { for {set i 0} {$i < $o(at_once) && $i < $o(workers)} {incr i} { ask_next } }
    default { puts stderr "incast.tcl: start is all, slots or window"; exit 2 }
  }
}

# Workers have a host and a link each, or share these.
set hosts [expr {$o(hosts) > 0 ? min($o(hosts), $o(workers)) : $o(workers)}]
set nodes {}
set tcps {}
for {set i 0} {$i < $o(workers)} {incr i} {
  if {$i < $hosts} {
    set worker [$ns node]
    lappend nodes $worker
    $ns duplex-link $worker $switch $o(rate) $o(delay) DropTail
    $worker add-route [$aggregator id] [[$ns link $worker $switch] head]
    $aggregator add-route [$worker id] [[$ns link $aggregator $switch] head]
    $switch add-route [$worker id] [[$ns link $switch $worker] head]
  }
  set worker [lindex $nodes [expr {$i % $hosts}]]
  set tcp [new Agent/TCP/$o(tcp)]
  set sink [new Agent/TCPSink[expr {$o(tcp) eq "Sack1" ? "/Sack1" : ""}][expr {$o(delayed_ack) > 0 ? "/DelAck" : ""}]]
  $ns attach-agent $worker $tcp
  $ns attach-agent $aggregator $sink
  $ns connect $tcp $sink
  if {[info exists trace]} {
    $tcp attach $trace
    foreach variable $o(variables) { $tcp tracevar $variable }
  }
  if {$o(random_rto) > 0} {
    set tcp_of([$worker id]) $tcp
    $tcp attach $timeout_channel
    $tcp tracevar nrexmit_
    draw_rto $tcp
  }
  lappend tcps $tcp
}
if {$o(samples) ne ""} {
  set samples [open $o(samples) w]
  sample
}
start_block
$ns at $o(seconds) out_of_time
$ns run
